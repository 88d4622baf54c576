//go:build !race

package quic

const raceDetector = false
