package quicgo

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/volley-quic/volley/quic"
	"github.com/volley-quic/volley/scheduler"
)

// No field is forgotten: each one alone comes out on the other side with its value, or
// is an error that names it.
func TestEveryFieldOfConfigIsConverted(t *testing.T) {
	v := reflect.ValueOf(&quic.Config{
		TokenStore:                    quic.NewLRUTokenStore(1, 1),
		AllowConnectionWindowIncrease: func(*quic.Conn, uint64) bool { return true },
		GetConfigForClient:            func(*quic.ClientInfo) (*quic.Config, error) { return nil, nil },
		Scheduler:                     func() scheduler.Scheduler { return scheduler.New() },
		PreferredAddresses:            []quic.PreferredAddress{{}},
		Tracer:                        tracer,
		Versions:                      []quic.Version{quic.Version2},
	}).Elem()
	g := reflect.ValueOf(&quicgo.Config{
		TokenStore:                    quicgo.NewLRUTokenStore(1, 1),
		AllowConnectionWindowIncrease: func(*quicgo.Conn, uint64) bool { return true },
		GetConfigForClient:            func(*quicgo.ClientInfo) (*quicgo.Config, error) { return nil, nil },
		Tracer:                        tracer,
		Versions:                      []quicgo.Version{quicgo.Version2},
	}).Elem()
	toVolley := func(c any) (any, error) { return ConfigToVolley(c.(*quicgo.Config)) }
	fromVolley := func(c any) (any, error) { return ConfigFromVolley(c.(*quic.Config)) }
	const noWay = "TokenStore AllowConnectionWindowIncrease Scheduler CongestionControl MaxPacketSize PreferredAddresses"

	for _, dir := range []struct {
		name    string
		full    reflect.Value // has a value for what fill cannot make
		convert func(any) (any, error)
	}{{"to Volley", g, toVolley}, {"from Volley", v, fromVolley}} {
		for i := range dir.full.NumField() {
			field := dir.full.Type().Field(i)
			t.Run(dir.name+"/"+field.Name, func(t *testing.T) {
				c := reflect.New(dir.full.Type())
				one := c.Elem().Field(i)
				one.Set(dir.full.Field(i))
				fill(one)
				if one.IsZero() {
					t.Fatal("this test has no value for it")
				}
				r, err := dir.convert(c.Interface())
				if strings.Contains(noWay, field.Name) {
					if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), field.Name) {
						t.Errorf("%v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := reflect.ValueOf(r).Elem()
				for j := range got.NumField() {
					name, f := got.Type().Field(j).Name, got.Field(j)
					switch {
					case name != field.Name && !f.IsZero():
						t.Errorf("%s is set", name)
					case name != field.Name:
					case f.IsZero():
						t.Error("was forgotten")
					case f.Kind() != reflect.Func && !reflect.DeepEqual(f.Interface(), one.Interface()):
						t.Errorf("became %v, was %v", f, one)
					}
				}
			})
		}
	}
}

func tracer(context.Context, bool, quic.ConnectionID) qlogwriter.Trace { return nil }

func fill(f reflect.Value) {
	switch {
	case f.CanInt():
		f.SetInt(77)
	case f.CanUint() && f.Kind() == reflect.Uint8:
		f.SetUint(1)
	case f.CanUint():
		f.SetUint(1300)
	case f.Kind() == reflect.Bool:
		f.SetBool(true)
	}
}

func TestConfigOfNil(t *testing.T) {
	if c, err := ConfigToVolley(nil); c != nil || err != nil {
		t.Error(c, err)
	}
	if c, err := ConfigFromVolley(nil); c != nil || err != nil {
		t.Error(c, err)
	}
}

// What the functions in a Config are told and return is converted when they are called.
func TestConfigFunctionsAreConverted(t *testing.T) {
	refused := errors.New("refused")
	addr := &net.UDPAddr{Port: 7}
	var told []quicgo.ClientInfo
	answers := []struct {
		c   *quicgo.Config
		err error
	}{
		{&quicgo.Config{MaxIncomingStreams: 5}, nil},
		{nil, nil},
		{nil, refused},
		{&quicgo.Config{TokenStore: quicgo.NewLRUTokenStore(1, 1)}, nil},
	}
	orig := &quicgo.Config{GetConfigForClient: func(info *quicgo.ClientInfo) (*quicgo.Config, error) {
		told = append(told, *info)
		a := answers[len(told)-1]
		return a.c, a.err
	}}
	there, err := ConfigToVolley(orig)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ConfigFromVolley(there)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		c, err := back.GetConfigForClient(&quicgo.ClientInfo{RemoteAddr: addr, AddrVerified: true})
		if told[i] != (quicgo.ClientInfo{RemoteAddr: addr, AddrVerified: true}) {
			t.Errorf("told %+v", told[i])
		}
		switch {
		case i == 3:
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("a config that cannot be converted: %v", err)
			}
		case !errors.Is(err, a.err) || (c == nil) != (a.c == nil) || c != nil && c.MaxIncomingStreams != 5:
			t.Errorf("answer %d became %v, %v", i, c, err)
		}
	}
}
