//go:build !linux

package main

import (
	"io"
	"os"
)

// vectorFile: there is no preadv to use here; Volley falls back to scatter and
// says so.
func vectorFile(f *os.File) io.ReaderAt { return f }
