package streams

import (
	"encoding/json"
	"errors"
	"testing"

	"flightline/shared/endpoint"
	"flightline/shared/testenv"
)

// What the server says of each stream that Apply makes is that of a stream of
// this version, with other replicas and ages too.
func TestCopiesOfAllStreamsAreOurs(t *testing.T) {
	b := testenv.NewServer(t)
	cfg := Config{Partitions: 3}
	if err := Apply(t.Context(), b.JS, cfg); err != nil {
		t.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := ApplyEndpoint(t.Context(), b.JS, cfg, e); err != nil {
		t.Fatal(err)
	}
	list := b.JS.ListStreams(t.Context())
	n := 0
	for info := range list.Info() {
		n++
		config := info.Config
		config.Replicas, config.MaxAge, config.MaxBytes = 3, 1, 1<<30
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckCopied(config.Name, text); err != nil {
			t.Error(err)
		}
		for _, subject := range []string{"$JS.API.STREAM.DELETE.X", "$SYS.x", "other.x", "", "a..b", ".", ">", "*"} {
			if Takes(config.Name, subject) {
				t.Errorf("%s takes %q", config.Name, subject)
			}
		}
	}
	if err := list.Err(); err != nil || n < 10 {
		t.Errorf("got %d streams, %v", n, err)
	}
	if Takes("EVENTS", "$KV.keys.x") || !Takes("EVENTS", "events.ep.queued.x.1.0") || Takes("KV_keys", "$KV.keys") || !Takes("KV_keys", "$KV.keys.x") || Takes("scaling", "scaling.a.b") {
		t.Error("a stream takes what is not its own, or not what is")
	}
}

// A configuration is refused or that of a stream of this version, whatever is in it.
func FuzzCheckCopied(f *testing.F) {
	for _, text := range []string{
		`{"name":"EVENTS","subjects":["events.>"],"retention":"limits","storage":"file","max_age":1}`,
		`{"name":"EVENTS","subjects":["events.>","$KV.keys.>"],"storage":"file"}`,
		`{"name":"EVENTS","subjects":["events.>"],"republish":{"src":">","dest":"x"}}`, `[]`, `null`, `{"name":1}`,
	} {
		f.Add("EVENTS", text)
	}
	f.Add("JOBS_ep", `{"name":"JOBS_ep"}`)
	f.Add("KV_records_1", `{"name":"KV_records_1"}`)
	f.Fuzz(func(t *testing.T, name, text string) {
		err := CheckCopied(name, json.RawMessage(text))
		if err != nil && !errors.Is(err, ErrCopied) {
			t.Errorf("got %v, want an ErrCopied", err)
		}
		if _, ours := PartOf(name); err == nil && !ours {
			t.Errorf("%q passes and is no stream of ours", name)
		}
	})
}
