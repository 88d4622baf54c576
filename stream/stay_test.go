package stream

import (
	"bytes"
	"runtime"
	"testing"
)

// onOwnThread reports whether the goroutine that calls it has its thread for itself.
func onOwnThread() bool {
	b := make([]byte, 200)
	return bytes.Contains(b[:runtime.Stack(b, false)], []byte("locked to thread"))
}

// A call that writes in bulk stays on its thread while it sends, if the host wants that, and
// neither while it waits nor behind it.
func TestStay(t *testing.T) {
	much := make([]byte, DefaultHigh+1)
	for name, write := range map[string]func(s *Send, p []byte) (int, error){
		"Write":      (*Send).Write,
		"CloseWith":  (*Send).CloseWith,
		"WriteOwned": func(s *Send, p []byte) (int, error) { return s.WriteOwned(p, nil) },
	} {
		for _, tt := range []struct {
			name  string
			p     []byte
			stays bool
			want  bool
		}{
			{"much", much, true, true},
			{"a little", much[:brief], true, false},
			{"much, and the host does not want it", much, false, false},
		} {
			t.Run(name+" of "+tt.name, func(t *testing.T) {
				h := newHost(t)
				h.stays = tt.stays
				s := NewSend(0, h, 1<<40)
				if _, err := s.Write(much[:DefaultHigh/2]); err != nil {
					t.Fatal(err)
				}
				pushed, waited := 0, 0
				h.onPush = func(*Send) {
					pushed++
					if got := onOwnThread(); got != tt.want {
						t.Errorf("while it sends: on its own thread: %v", got)
					}
				}
				h.onAwait = func() {
					waited++
					if onOwnThread() {
						t.Error("on its own thread while it waits")
					}
					h.do(func() {
						_, n, _, _, _ := s.Next(1 << 30)
						s.Packed(0, n, false)
						h.buffered = 0
					})
				}
				if name == "WriteOwned" {
					h.do(func() { h.high, h.buffered = DefaultHigh, DefaultHigh })
				}
				if n, err := write(s, tt.p); n != len(tt.p) || err != nil {
					t.Errorf("%d, %v", n, err)
				}
				if pushed == 0 || len(tt.p) > brief && waited == 0 {
					t.Errorf("%d times sent and %d times waited: not what this test is about", pushed, waited)
				}
				if onOwnThread() || h.staying || s.stays {
					t.Errorf("behind it: on its own thread: %v, the host thinks so: %v, the stream: %v", onOwnThread(), h.staying, s.stays)
				}
			})
		}
	}
}

// A host that panics while it sends leaves no goroutine behind that has its thread for
// itself.
func TestStayNotBehindAPanic(t *testing.T) {
	h := newHost(t)
	h.stays = true
	h.onPush = func(*Send) { panic("of the host") }
	s := NewSend(0, h, 1<<40)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		s.Write(make([]byte, 64<<10))
	}()
	if onOwnThread() || h.staying {
		t.Errorf("on its own thread: %v, the host thinks so: %v", onOwnThread(), h.staying)
	}
}
