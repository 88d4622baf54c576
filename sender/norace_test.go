//go:build !race

package sender

const raced = false
