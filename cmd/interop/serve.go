package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// serve answers the requests of every connection of l with files of www, until ctx ends
// or the listener does. What goes wrong with one connection or request is told to log.
func serve(ctx context.Context, l listener, p protocol, www *os.Root, log io.Writer) error {
	for {
		c, err := l.accept(ctx)
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			if err := p.start(ctx, c); err != nil {
				fmt.Fprintf(log, "a connection ended: %v\n", err)
				return
			}
			for {
				s, err := c.accept(ctx)
				if err != nil {
					fmt.Fprintf(log, "a connection ended: %v\n", err)
					return
				}
				go func() {
					if err := p.answer(ctx, s, www); err != nil {
						fmt.Fprintf(log, "a request was not answered: %v\n", err)
					}
				}()
			}
		}()
	}
}
