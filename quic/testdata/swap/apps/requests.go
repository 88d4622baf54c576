package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/quic-go/quic-go"
)

type request struct{ A, B int }

type response struct{ Sum int }

// requestsServer answers one request a stream.
func requestsServer(ctx context.Context, conn *quic.Conn) error {
	for {
		str, err := conn.AcceptStream(ctx)
		if err != nil {
			return err
		}
		go func() {
			defer str.Close()
			var req request
			if err := json.NewDecoder(str).Decode(&req); err != nil {
				str.CancelWrite(1)
				return
			}
			str.CancelRead(0) // there is one request to a stream
			json.NewEncoder(str).Encode(response{req.A + req.B})
		}()
	}
}

// requestsClient has 200 requests under way, of which the server allows 10 at a time.
func requestsClient(ctx context.Context, addr string) error {
	conn, err := quic.DialAddr(ctx, addr, clientTLS("requests"), nil)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	var wg sync.WaitGroup
	var mu sync.Mutex
	total, failed := 0, 0
	for i := range 200 {
		wg.Go(func() {
			sum, err := call(ctx, conn, request{i, i * i})
			mu.Lock()
			defer mu.Unlock()
			total += sum
			if err != nil {
				failed++
			}
		})
	}
	wg.Wait()
	fmt.Println("total:", total, "failed:", failed)

	// Streams that are open count until they are closed. The server may give those of
	// before back a few at a time.
	var open []*quic.Stream
	for len(open) < 8 {
		str, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		open = append(open, str)
	}
	for {
		str, err := conn.OpenStream()
		var limit *quic.StreamLimitReachedError
		if errors.As(err, &limit) {
			fmt.Println("limit:", err, len(open) <= 10)
			break
		}
		if err != nil {
			return err
		}
		open = append(open, str)
	}
	for _, str := range open {
		str.CancelRead(2)
		str.CancelWrite(2)
	}
	sum, err := call(ctx, conn, request{40, 2})
	fmt.Println("one more:", sum, err)
	return nil
}

func call(ctx context.Context, conn *quic.Conn, req request) (int, error) {
	str, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return 0, err
	}
	defer str.Close()
	if err := json.NewEncoder(str).Encode(req); err != nil {
		return 0, err
	}
	var resp response
	err = json.NewDecoder(str).Decode(&resp)
	str.CancelRead(0)
	return resp.Sum, err
}
