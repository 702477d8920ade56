package netguard

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		want string // with spaces between them
		bad  string // part of the error, "" for none
	}{
		"":                                 {"", ""},
		" , ":                              {"", ""},
		"10.1.2.3/16, fd00:1::9/32":        {"10.1.0.0/16 fd00:1::/32", ""},
		"10.1.0.0/16,10.0.0.1":             {"", `"10.0.0.1"`},
		"10.1.0.0/33":                      {"", `"10.1.0.0/33"`},
		"all":                              {"", `"all"`},
		"10.0.0.0/8;192.168.0.0/16":        {"", `"10.0.0.0/8;192.168.0.0/16"`},
		strings.Repeat("10.0.0.0/8,", 500): {strings.TrimSpace(strings.Repeat("10.0.0.0/8 ", 500)), ""},
	}
	for text, want := range tests {
		got, err := ParseNetworks(text)
		if want.bad != "" {
			if !errors.Is(err, ErrNetworks) || !strings.Contains(err.Error(), want.bad) {
				t.Errorf("%q: got %v, want an ErrNetworks that quotes %s", text, err, want.bad)
			}
			continue
		}
		var parts []string
		for _, p := range got {
			parts = append(parts, p.String())
		}
		if err != nil || strings.Join(parts, " ") != want.want {
			t.Errorf("%q: got %v, %v, want %s", text, parts, err, want.want)
		}
	}
}

// What is read can be written and read again, and each network is masked.
func FuzzParseNetworks(f *testing.F) {
	for _, text := range []string{"", "10.1.0.0/16,fd00:1::/32", "10.1.2.3/8", "::ffff:10.0.0.0/104", "fe80::1%lo/64", "1.2.3.4/-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		networks, err := ParseNetworks(text)
		if err != nil {
			if !errors.Is(err, ErrNetworks) {
				t.Errorf("got %v, want an ErrNetworks", err)
			}
			return
		}
		var parts []string
		for _, p := range networks {
			if p != p.Masked() {
				t.Errorf("%s is not masked", p)
			}
			parts = append(parts, p.String())
		}
		again, err := ParseNetworks(strings.Join(parts, ","))
		if err != nil || !slices.Equal(again, networks) {
			t.Errorf("got %v, %v, want %v", again, err, networks)
		}
	})
}

// The judgement holds for every address that a resolver may return: no address
// in a network that is not allowed passes, in whatever form it is spelled.
func FuzzDialer(f *testing.F) {
	for _, a := range []string{"127.0.0.1", "10.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "93.184.216.34", "2002:7f00:1::"} {
		raw, _ := netip.MustParseAddr(a).MarshalBinary()
		f.Add(raw)
	}
	control := Dialer(nil, 0).Control
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		network := "tcp6"
		if a.Is4() {
			network = "tcp4"
		}
		inside := a.Unmap()
		private := inside.IsLoopback() || inside.IsPrivate() || inside.IsLinkLocalUnicast() || inside.IsMulticast() || inside.IsUnspecified()
		if err := control(network, netip.AddrPortFrom(a, 443).String(), nil); private && !errors.Is(err, ErrAddress) {
			t.Errorf("%s: got %v, want it refused", a, err)
		}
	})
}
