package quic

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestConfigDefaults(t *testing.T) {
	for _, c := range []*Config{nil, {}} {
		if err := c.validate(); err != nil {
			t.Errorf("%+v does not validate: %v", c, err)
		}
		want := &Config{
			Versions:                       []Version{Version1, Version2},
			HandshakeIdleTimeout:           5 * time.Second,
			MaxIdleTimeout:                 30 * time.Second,
			InitialStreamReceiveWindow:     512 << 10,
			MaxStreamReceiveWindow:         6 << 20,
			InitialConnectionReceiveWindow: 768 << 10,
			MaxConnectionReceiveWindow:     15 << 20,
			MaxIncomingStreams:             100,
			MaxIncomingUniStreams:          100,
			MaxPacketSize:                  1452,
		}
		got := c.populate()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("defaults of %+v:\n got %+v\nwant %+v", c, got, want)
		}
		if n := got.initialPacketSize(); n != 1280 {
			t.Errorf("packets begin with %d bytes, want 1280", n)
		}
		if d := got.handshakeTimeout(); d != 10*time.Second {
			t.Errorf("a handshake may take %v, want 10 s", d)
		}
	}
}

func TestConfigLimits(t *testing.T) {
	const maxVarint = 1<<62 - 1
	tests := []struct {
		name string
		in   Config
		got  func(*Config) any
		want any
	}{
		{"a negative stream limit means none", Config{MaxIncomingStreams: -1}, func(c *Config) any { return c.MaxIncomingStreams }, int64(0)},
		{"a negative uni stream limit means none", Config{MaxIncomingUniStreams: -7}, func(c *Config) any { return c.MaxIncomingUniStreams }, int64(0)},
		{"a stream limit of more than 2^60 is 2^60", Config{MaxIncomingStreams: 1<<60 + 1}, func(c *Config) any { return c.MaxIncomingStreams }, int64(1 << 60)},
		{"a uni stream limit of more than 2^60 is 2^60", Config{MaxIncomingUniStreams: 1<<60 + 1}, func(c *Config) any { return c.MaxIncomingUniStreams }, int64(1 << 60)},
		{"windows fit a varint", Config{MaxStreamReceiveWindow: 1 << 62}, func(c *Config) any { return c.MaxStreamReceiveWindow }, uint64(maxVarint)},
		{"connection windows, too", Config{MaxConnectionReceiveWindow: 1 << 63}, func(c *Config) any { return c.MaxConnectionReceiveWindow }, uint64(maxVarint)},
		{"initial windows, too", Config{InitialStreamReceiveWindow: 1 << 62}, func(c *Config) any { return c.InitialStreamReceiveWindow }, uint64(maxVarint)},
		{"and the connection's", Config{InitialConnectionReceiveWindow: 1 << 62}, func(c *Config) any { return c.InitialConnectionReceiveWindow }, uint64(maxVarint)},
		{"packets have 1200 bytes at least", Config{InitialPacketSize: 10}, func(c *Config) any { return c.InitialPacketSize }, uint16(1200)},
		{"and begin with the ceiling at most", Config{InitialPacketSize: 9000}, func(c *Config) any { return c.InitialPacketSize }, uint16(1452)},
		{"which can be raised", Config{InitialPacketSize: 9000, MaxPacketSize: 16376}, func(c *Config) any { return c.InitialPacketSize }, uint16(9000)},
		{"a low ceiling counts", Config{MaxPacketSize: 1250}, func(c *Config) any { return c.initialPacketSize() }, 1250},
		{"no ceiling is below 1200", Config{MaxPacketSize: 5}, func(c *Config) any { return c.MaxPacketSize }, uint16(1200)},
		{"or above what UDP carries", Config{MaxPacketSize: 65535}, func(c *Config) any { return c.MaxPacketSize }, uint16(65507)},
		{"what is set stays", Config{Versions: []Version{Version2}}, func(c *Config) any { return c.Versions }, []Version{Version2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.in
			if err := tt.in.validate(); err != nil {
				t.Fatal(err)
			}
			if got := tt.got(tt.in.populate()); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if !reflect.DeepEqual(before, tt.in) {
				t.Error("the application's Config was changed")
			}
		})
	}
}

func TestConfigInvalid(t *testing.T) {
	for _, c := range []*Config{
		{Versions: []Version{Version1, 0xff00001d}},
		{Versions: []Version{0}},
		{CongestionControl: 17},
	} {
		if c.validate() == nil {
			t.Errorf("%+v validates", c)
		}
	}
	err := (&Config{Versions: []Version{0x12345678}}).validate()
	if err == nil || !strings.Contains(err.Error(), "invalid QUIC version: 0x12345678") {
		t.Errorf("error does not say which version: %v", err)
	}
}

func TestConfigClone(t *testing.T) {
	// Set every field that reflection can, so that a field added later is tested too.
	c := &Config{GetConfigForClient: func(*ClientInfo) (*Config, error) { return nil, nil }}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int64:
			f.SetInt(int64(i + 1))
		case reflect.Uint8:
			f.SetUint(1)
		case reflect.Uint16, reflect.Uint64:
			f.SetUint(uint64(2000 + i))
		case reflect.Slice:
			c.Versions = []Version{Version2}
		}
	}
	d := c.Clone()
	if d == c {
		t.Fatal("Clone returned its receiver")
	}
	same := func(what string, d *Config) {
		t.Helper()
		for i := range v.NumField() {
			name, a, b := v.Type().Field(i).Name, v.Field(i), reflect.ValueOf(d).Elem().Field(i)
			switch a.Kind() {
			case reflect.Func:
				if a.IsNil() != b.IsNil() {
					t.Errorf("%s loses %s", what, name)
				}
			case reflect.Interface:
			default:
				if !reflect.DeepEqual(a.Interface(), b.Interface()) {
					t.Errorf("%s turns %s from %v into %v", what, name, a, b)
				}
			}
		}
	}
	same("Clone", d)
	c.MaxPacketSize, c.InitialPacketSize = 5000, 3000
	same("populate", c.populate())
	d.MaxIncomingStreams = 3
	if c.MaxIncomingStreams == 3 {
		t.Error("a clone shares its fields")
	}
}
