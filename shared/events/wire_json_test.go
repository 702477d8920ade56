package events

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/job"
)

// What is written without reflection is what encoding/json writes, and is read as it
// reads it.
func TestTheWireFormIsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	zero, before := int64(0), int64(-3)
	event := wireEvent{Kind: Failed, At: -1, Run: 2, Worker: "w", Retries: 3, Lost: 4, Started: &zero, Retained: &before}
	for _, text := range []string{"", "no", `a "b" \c`, "<a>&", "é\u2028\x00\xff", "line\nline", strings.Repeat("x", 300)} {
		event.Error, event.Cause = text, text
		want := wireEntry{Partition: 3, After: 1 << 60, Attempts: []wireAttempt{
			{Job: "a", Submitted: 1, Expires: 2, Events: []wireEvent{{Kind: Queued}, event}},
			{Job: job.ID(text), Attempt: 2, Mode: job.Sync, Class: job.LowPriority, Submitted: -1, Queued: 5, Events: []wireEvent{{Kind: "new"}}},
		}}
		var lines []string
		for i := range want.Attempts {
			lines = append(lines, string(want.Attempts[i].append(nil)))
		}
		got := fmt.Sprintf(`{"partition":3,"after":%d,"attempts":[%s]}`, want.After, strings.Join(lines, ","))
		encoded, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(encoded) {
			t.Errorf("%q: got  %s\nwant %s", text, got, encoded)
		}
		read, ok := readEntry(encoded)
		if escaped := strings.Contains(got, `\`); ok == escaped {
			t.Errorf("%q: read %v, want %v", text, ok, !escaped)
		}
		if ok {
			if diff := cmp.Diff(want, read); diff != "" {
				t.Errorf("%q: want -, read +:\n%s", text, diff)
			}
		}
	}
}

// What has another form is left to encoding/json.
func TestReadEntryRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	const entry = `{"partition":1,"after":2,"attempts":[{"job":"a","submitted":1,"expires":2,"events":[{"kind":"queued"}]}]}`
	if _, ok := readEntry([]byte(entry)); !ok {
		t.Fatalf("%s is not read", entry)
	}
	for end := range entry {
		if _, ok := readEntry([]byte(entry[:end])); ok {
			t.Errorf("%s is read", entry[:end])
		}
	}
	for _, other := range []string{
		entry + " ", entry + "{}", strings.Replace(entry, ":1", ": 1", 1), strings.Replace(entry, "after", "later", 1),
		strings.Replace(entry, `"kind"`, `"kinds"`, 1), strings.Replace(entry, `"job"`, `"Job"`, 1), strings.Replace(entry, `:2`, `:-`, 1),
		strings.Replace(entry, `:2`, `:18446744073709551615`, 1), strings.Replace(entry, `:2`, `:-2`, 1), strings.Replace(entry, `[{"kind":"queued"}]`, `[]`, 1), `{}`, `null`,
	} {
		if _, ok := readEntry([]byte(other)); ok {
			t.Errorf("%s is read", other)
		}
	}
}

// What an entry costs a job that is written and read.
func BenchmarkEntry(b *testing.B) {
	const jobs = 128
	var list []Event
	for n := range jobs {
		list = append(list, life("ep", fmt.Sprintf("0199b0a2-0000-7000-8000-%012d", n))...)
	}
	perJob := func(b *testing.B) {
		b.Helper()
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*jobs), "ns/job")
	}
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			entriesOf(list, 1, 7)
		}
		perJob(b)
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		m := entriesOf(list, 1, 7)[0]
		for range b.N {
			if _, err := parseEntry(m.Subject, m.Data); err != nil {
				b.Fatal(err)
			}
		}
		perJob(b)
	})
}
