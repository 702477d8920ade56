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
	f.Add("events.ep.queued.-.-.-.-.-", []byte(`{"partition":1,"after":2,"attempts":[{"job":"a","submitted":1,"events":[{"kind":"queued","at":-1}]}]}`))
	f.Fuzz(func(t *testing.T, subject string, body []byte) {
		entry, err := parse(subject, body, 1, time.Unix(0, 0))
		if err != nil {
			return
		}
		if n := len(entry.Events); entry.Seq != 1 || n == 0 || entry.Events[n-1].Seq != endOf(1) {
			t.Errorf("got %+v of %q", entry, subject)
		}
		for _, e := range entry.Events {
			if _, err := json.Marshal(e.Cloud()); err != nil {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}
