//go:build race

package quic

// The race detector makes a packet ten times as dear.
const raceDetector = true
