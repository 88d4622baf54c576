package stream

import (
	"context"
	"errors"
	"testing"

	"github.com/volley-quic/volley/emit"
)

// A stream that the peer has stopped is over when the application has heard of it, one
// way or the other: before, somebody still works for it.
func TestStoppedStreamIsOverWhenTheApplicationKnows(t *testing.T) {
	useTestErrors(t)
	never := func() bool { return false }
	for name, hear := range map[string]func(s *Send){
		"Write":       func(s *Send) { s.Write([]byte{1}) },
		"WriteOwned":  func(s *Send) { s.WriteOwned(make([]byte, ownedMin), nil) },
		"CloseWith":   func(s *Send) { s.CloseWith(nil) },
		"TryWriteAll": func(s *Send) { s.TryWriteAll(nil) },
		"Close":       func(s *Send) { s.Close() },
		"Cancel":      func(s *Send) { s.Cancel(1) },
		"a source":    func(s *Send) { s.BeginSource(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []bool{false, true} {
				h := newHost(t)
				s := NewSend(0, h, plenty)
				h.do(func() { s.StopSending(7); s.ResetSent() })
				if first {
					hear(s)
				}
				h.do(func() { s.ResetAcked(0) })
				if !first {
					if h.done != 0 {
						t.Fatal("over before the application knows")
					}
					hear(s)
				}
				hear(s)
				if h.done != 1 {
					t.Errorf("SendDone was called %d times, application first %v", h.done, first)
				}
			}
		})
	}
	for name, hear := range map[string]func(h *testHost, s *Send){
		"a Write that waits": func(h *testHost, s *Send) { s.Write(make([]byte, 100)) },
		"a source that waits": func(h *testHost, s *Send) {
			s.BeginSource(context.Background())
			s.WaitSource(context.Background(), never)
			s.EndSource()
		},
		"Close before": func(h *testHost, s *Send) { s.Close() },
		"the connection's end": func(h *testHost, s *Send) {
			h.do(func() { s.StopSending(7) })
			h.do(func() { s.ConnClosed(errors.New("gone")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			s := NewSend(0, h, plenty)
			s.SetWriteBuffer(10, 10)
			h.onPush = func(*Send) { h.do(func() { s.StopSending(7); s.ResetSent() }) }
			heard := make(chan struct{})
			go func() { hear(h, s); close(heard) }()
			if name == "a source that waits" {
				for inside := false; !inside; {
					h.do(func() { inside = s.gate.parked })
				}
				h.do(func() { s.StopSending(7); s.ResetSent() })
			}
			<-heard
			h.do(func() { s.ResetAcked(0) })
			want := 1
			if name == "the connection's end" {
				want = 0
			}
			if h.done != want {
				t.Errorf("SendDone was called %d times", h.done)
			}
		})
	}
}

// TryWriteAll looks at the peer's credit, and at a high mark that somebody has set.
func TestTryWriteAllAndTheHighMark(t *testing.T) {
	useTestErrors(t)
	s := NewSend(0, newHost(t), 1<<20)
	for range 4 {
		if err := s.TryWriteAll(make([]byte, 1<<18)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.TryWriteAll([]byte{1}); err != errs.WouldBlock {
		t.Errorf("beyond the credit: %v", err)
	}
	s = NewSend(0, newHost(t), 1<<20)
	s.SetWriteBuffer(1000, 2000)
	for i, want := range []error{nil, nil, errs.WouldBlock} {
		if err := s.TryWriteAll(make([]byte, 1000)); err != want {
			t.Errorf("write %d with a high mark: %v", i, err)
		}
	}
	s.SetWriteBuffer(0, 0)
	if err := s.TryWriteAll(make([]byte, 1000)); err != nil {
		t.Errorf("without a buffer: %v", err)
	}
	h := newHost(t)
	s = NewSend(0, h, 1<<20)
	s.BeginSource(t.Context())
	if err := s.TryWriteAll([]byte{1}); err != emit.ErrBusy {
		t.Errorf("during a source: %v", err)
	}
}

// A stream's context carries values of the connection's and ends for the stream's own
// reason, also if nobody asked for it before.
func TestContextOfAStreamThatWasClosedFirst(t *testing.T) {
	useTestErrors(t)
	type key struct{}
	h := newHost(t)
	var end context.CancelCauseFunc
	h.ctx, end = context.WithCancelCause(context.WithValue(context.Background(), key{}, "value"))
	s := NewSend(0, h, plenty)
	s.Close()
	end(errors.New("gone"))
	h.do(func() { s.ConnClosed(errors.New("gone")) })
	ctx := s.Context()
	if context.Cause(ctx) != errs.Closed || ctx.Value(key{}) != "value" {
		t.Errorf("cause %v, value %v", context.Cause(ctx), ctx.Value(key{}))
	}
}
