package events

import (
	"encoding/json"
	"testing"
	"time"
)

// An event that is read can be shown, whatever its subject and body hold.
func FuzzEvent(f *testing.F) {
	f.Add("events.ep.queued.x.1.0", []byte(`{"at":1,"status":"IN_QUEUE","error":"x"}`))
	f.Add("events.ep.completed.x.1.1", []byte(`{"at":-9223372036854775808,"finished":9223372036854775807}`))
	f.Add("events", []byte(`[]`))
	f.Fuzz(func(t *testing.T, subject string, body []byte) {
		e, err := parse(subject, body, 1, time.Unix(0, 0))
		if err != nil {
			return
		}
		if e.Seq != 1 || e.Endpoint == "" && subject == "" {
			t.Errorf("got %+v of %q", e, subject)
		}
		if _, err := json.Marshal(e.Error); err != nil {
			t.Errorf("%q: %v", e.Error, err)
		}
	})
}
