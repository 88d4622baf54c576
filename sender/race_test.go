//go:build race

package sender

// raced: the race detector is on. It has pools forget at random, so that allocations are not
// counted, and it takes its time, so that random tests are shorter.
const raced = true
