package ratelimit

import (
	"reflect"
	"testing"
)

// A quota is refused, or is what its own text says.
func FuzzParseQuota(f *testing.F) {
	for _, text := range []string{"requests=500,concurrent=20,endpoints=3", "", "requests=0", "requests=-1", "requests=1,requests=2", "bytes=1", "requests=+1", "default", "requests=default,endpoints=1", "requests=99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseQuota(text)
		if err != nil {
			return
		}
		if q == (Quota{}) { // "default" and the like
			return
		}
		again, err := ParseQuota(q.String())
		if err != nil || !reflect.DeepEqual(again, q) || q.Check() != nil {
			t.Errorf("%q: got %v of %q, %v", text, again, q, err)
		}
	})
}
