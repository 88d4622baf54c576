package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	notFound  quic.StreamErrorCode = 404
	badUpload quic.StreamErrorCode = 400
)

// filesServer answers "GET name" on a stream with the file, and keeps what comes on
// unidirectional streams as "PUT name", a line, and the content.
func filesServer(ctx context.Context, conn *quic.Conn) error {
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, size := range map[string]int{"empty": 0, "small": 100, "large": 3 << 20} {
		if err := os.WriteFile(filepath.Join(dir, name), noise(size), 0o600); err != nil {
			return err
		}
	}
	go func() {
		for {
			str, err := conn.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			go upload(dir, str)
		}
	}()
	for {
		str, err := conn.AcceptStream(ctx)
		if err != nil {
			return err
		}
		go download(dir, str)
	}
}

func download(dir string, str *quic.Stream) {
	line, err := bufio.NewReader(str).ReadString('\n')
	name, ok := strings.CutPrefix(strings.TrimSpace(line), "GET ")
	if err != nil || !ok {
		str.CancelWrite(badUpload)
		return
	}
	f, err := os.Open(filepath.Join(dir, filepath.Base(name)))
	if err != nil {
		str.CancelWrite(notFound)
		return
	}
	defer f.Close()
	if _, err := io.Copy(str, f); err != nil {
		return
	}
	str.Close()
}

func upload(dir string, str *quic.ReceiveStream) {
	str.SetReadDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(str)
	line, err := r.ReadString('\n')
	name, ok := strings.CutPrefix(strings.TrimSpace(line), "PUT ")
	if err != nil || !ok {
		str.CancelRead(badUpload)
		return
	}
	f, err := os.Create(filepath.Join(dir, filepath.Base(name)+".part"))
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := io.Copy(f, r); err == nil {
		os.Rename(f.Name(), filepath.Join(dir, filepath.Base(name)))
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func filesClient(ctx context.Context, addr string) error {
	conn, err := quic.DialAddr(ctx, addr, clientTLS("files"), nil)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "done")

	up, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(up, "PUT mine\n")
	n, err := io.Copy(up, strings.NewReader(string(noise(1<<20))))
	fmt.Println("upload:", n, err)
	up.Close()

	bad, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(bad, "what?\n")
	<-bad.Context().Done()
	fmt.Println("bad upload:", context.Cause(bad.Context()))

	for _, name := range []string{"empty", "small", "large", "none", "mine"} {
		for try := 0; ; try++ {
			got, err := get(ctx, conn, name)
			var e *quic.StreamError
			if name == "mine" && errors.As(err, &e) && e.ErrorCode == notFound && try < 1000 {
				time.Sleep(10 * time.Millisecond) // the upload is still being written
				continue
			}
			if e != nil {
				fmt.Printf("%s: code %d, remote %v\n", name, e.ErrorCode, e.Remote)
			}
			fmt.Printf("%s: %d bytes, %x, %v\n", name, len(got), sha256.Sum256(got), err != nil)
			break
		}
	}
	return nil
}

func get(ctx context.Context, conn *quic.Conn, name string) ([]byte, error) {
	str, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(str, "GET %s\n", name)
	str.Close()
	return io.ReadAll(str)
}
