//go:build race

package sender

// raced: the race detector is on. It has pools forget at random, so that allocations are not
// counted, and takes its time.
const raced = true
