package registry

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

// A scope is refused, or has one text.
func FuzzParseScope(f *testing.F) {
	for _, text := range []string{"submit:ep", "read:*", "admin:*", "control", "pods", "control:", "submit:", "submit:a.b", "read:*:x", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScope(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: got %v, want an ErrInvalid", text, err)
			}
			return
		}
		if s.String() != text {
			t.Errorf("%q: got %q", text, s)
		}
	})
}

// An origin holds nothing that may be secret, and is its own origin.
func FuzzOriginOf(f *testing.F) {
	for _, text := range []string{"https://h/a?token=x#y", "http://user:secret@H:8080/a b", "http://[::1]/", "http://[fe80::1%25lo]:1/", "//h", "http://h:", "HTTP://h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		origin, ok := OriginOf(text)
		if !ok {
			return
		}
		u, err := url.Parse(origin)
		if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" || u.Port() == "" || strings.ContainsAny(u.Hostname(), "/@?#") {
			t.Errorf("%q: got %q, %v, want scheme, host and port alone", text, origin, err)
		}
		if again, ok := OriginOf(origin); !ok || again != origin {
			t.Errorf("%q: got %q of %q", text, again, origin)
		}
	})
}
