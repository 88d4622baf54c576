//go:build race

package sender

// raced: the race detector has pools forget at random, so that allocations are not counted.
const raced = true
