package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
)

// fromPeer reports whether the other side is where err comes from, or is gone.
func fromPeer(err error) bool {
	if _, ok := errors.AsType[*peerError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*closedError](err); ok {
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// describe says in one line, for people, what ended a transfer.
func describe(err error) string {
	text := oneLine(explain(err))
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return text
}

// maxText is more than any message of this program; others may say anything.
const maxText = 300

func explain(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, errNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err.Error() // it names its file; what follows is about connections
	}
	if _, ok := errors.AsType[*net.OpError](err); ok && errors.Is(err, net.ErrClosed) || err == net.ErrClosed {
		return "the connection is gone"
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return "the other side ended before the transfer did"
	}
	return err.Error()
}
