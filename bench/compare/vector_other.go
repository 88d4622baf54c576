//go:build !linux

package main

import (
	"io"
	"os"
)

// vectorFile has no preadv here: Vector falls back to Scatter, and the table says so.
func vectorFile(f *os.File) io.ReaderAt { return f }
