package gateway

import (
	"net/http"
	"strings"
	"testing"
)

// What a ping of one job and a chunk cost, beside a ping of none and a chunk
// that is dropped before anything is read: each reads the record from the
// leader, as no instance keeps leases.
func BenchmarkPost(b *testing.B) {
	s := newEnv(b)
	g := s.gateway(Config{})
	w := s.worker("w1", g)
	id := s.submit()
	w.take()
	w.ping(id)
	for name, post := range map[string]func(){
		"ping":    func() { w.ping(id) },
		"no job":  func() { w.ping() },
		"chunk":   func() { w.emit(id, `{"output":"a word of a text"}`) },
		"dropped": func() { w.emit("no.id", `{"output":1}`) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				post()
			}
		})
	}
	if a := w.send(http.MethodPost, "/job-done/%w/"+id, strings.NewReader(`{"output":1}`)); a.status != http.StatusOK {
		b.Errorf("got %d %s, want 200", a.status, a.raw)
	}
}
