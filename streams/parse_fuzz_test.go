package streams

import (
	"strings"
	"testing"
)

// What is read of a subject is in it, and makes the subject again if its numbers
// are spelled as we spell them.
func FuzzParseSubjects(f *testing.F) {
	for _, s := range []string{
		RecordSubject(0, "ep", "id", 1), EventSubject("ep", "queued", "id", 1, 0), EntrySubject("ep", func(kind string) bool { return kind == "queued" }), DueSubject(3, "ep", "id", 2),
		"webhooks.ep.id.1", "deliveries.ep.~.178", "undelivered.ep.id.-1", "......", "events.a.b.c.+1.x", "$KV.records_0.r.ep.id.9999999999999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tokens := strings.Split(s, ".")
		has := func(what string, texts ...string) {
			for _, text := range texts {
				if !strings.Contains("."+s+".", "."+text+".") {
					t.Errorf("%s of %q: got %q", what, s, text)
				}
			}
		}
		if e, id, _, err := ParseRecord(s); err == nil {
			has("record", e, string(id))
		}
		if e, kind, id, _, _, err := ParseEvent(s); err == nil {
			has("event", e, kind, string(id))
		}
		if e, err := ParseEntry(s); err == nil {
			has("entry", e)
		}
		if e, id, _, err := ParseDue(s); err == nil {
			has("timer", e, string(id))
		}
		if e, id, _, err := ParseWebhook(s); err == nil {
			has("webhook task", e, string(id))
		}
		if p, err := PayloadPartition(s); err == nil && (len(tokens) < 3 || p < 0 && tokens[1][0] != '-') {
			t.Errorf("partition of %q: got %d", s, p)
		}
	})
}
