package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/klauspost/compress/s2"

	"flightline/streams"
)

// An archive is read to its end or refused; a huge length in it allocates nothing.
func FuzzArchive(f *testing.F) {
	state := []byte(`{"messages":2,"bytes":100,"last_seq":2}`)
	f.Add([]byte(archiveMagic))
	f.Add(append([]byte(archiveMagic+"\x0a\x02\x00\x00\x27state.json"), state...))
	f.Add(append(append([]byte(archiveMagic+"\x0a\x02\x00\x00\x27state.json"), state...), 0, 0, 0, 0, 0))
	f.Add(append(append([]byte(archiveMagic+"\x0a\x02\x00\x00\x27state.json"), state...), "\x16\x02\x01\x00\x01events.ep.queued.x.1.0x\x00\x00\x00\x00\x00"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Copy{Name: streams.Events, State: json.RawMessage(state), Messages: 2}
		packed := s2.EncodeSnappy(nil, data) // a block, not a stream: it must be refused
		if err := verifyArchive(c, []Copy{c}, bytes.NewReader(packed)); err == nil {
			t.Error("a block passes for a stream")
		}
		var out bytes.Buffer
		w := s2.NewWriter(&out)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := verifyArchive(c, []Copy{c}, &out); err == nil && !bytes.HasSuffix(data, make([]byte, 5)) {
			t.Errorf("%q passes and has no end", data)
		}
	})
}

// Messages that pass are of the stream, and the first that is not ends them.
func FuzzLaterMessages(f *testing.F) {
	f.Add([]byte(`{"seq":1,"subject":"events.ep.queued.x.1.0","body":"eA=="}` + "\n"))
	f.Add([]byte(`{"seq":1,"subject":"$KV.keys.x"}` + "\n{"))
	f.Add([]byte("\n\n[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for m, err := range laterMessages(streams.Events, bytes.NewReader(data)) {
			if err == nil && !streams.Takes(streams.Events, m.Subject) || err != nil && !errors.Is(err, ErrArchive) {
				t.Errorf("got %+v, %v", m, err)
			}
		}
	})
}
