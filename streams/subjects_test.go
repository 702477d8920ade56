package streams_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

var (
	endpointIDs = rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Filter(endpoint.ValidID)
	jobIDs      = rapid.StringMatching(`(sync-)?[A-Za-z0-9_-]{1,100}`)
	attempts    = rapid.IntRange(1, 1_000_000)
	partitions  = rapid.IntRange(0, 1023)
)

func TestParseDueUndoesDueSubject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, e, id, attempt := partitions.Draw(t, "p"), endpointIDs.Draw(t, "endpoint"), job.ID(jobIDs.Draw(t, "job")), attempts.Draw(t, "attempt")
		subject := streams.DueSubject(p, e, id, attempt)
		gotE, gotID, gotAttempt, err := streams.ParseDue(subject)
		if err != nil || gotE != e || gotID != id || gotAttempt != attempt {
			t.Fatalf("%s: got %s, %s, %d, %v, want %s, %s, %d", subject, gotE, gotID, gotAttempt, err, e, id, attempt)
		}
		if filter := streams.DueFilter(p); !bus.Covers(filter, subject) {
			t.Fatalf("%s does not match %s", subject, filter)
		}
		if other := streams.DueFilter(p + 1); bus.Covers(other, subject) {
			t.Fatalf("%s matches %s of another partition", subject, other)
		}
	})
}

func TestParseDueRefusesWhatIsNoTimer(t *testing.T) {
	for _, subject := range []string{
		"", "due", "$KV.records_0.due", "$KV.records_0.due.ep.job", "$KV.records_0.due.ep.job.1.2", "$KV.records_0.due.ep.job.one",
		"$KV.records_0.due.ep.job.", streams.RecordSubject(0, "ep", "job", 1), streams.JobSubject("ep", job.Normal, "job"),
	} {
		if e, id, attempt, err := streams.ParseDue(subject); err == nil {
			t.Errorf("%q: got %s, %s, %d, want an error", subject, e, id, attempt)
		}
	}
}

// named is one subject with the filter that has to match it.
type named struct{ function, subject, filter string }

func subjectsOf(p int, e string, id job.ID, attempt int) []named {
	return []named{
		{"JobSubject", streams.JobSubject(e, job.Normal, id), streams.AllJobs(e)},
		{"JobSubject", streams.JobSubject(e, job.Normal, id), streams.ClassFilter(e, job.Normal)},
		{"JobSubject", streams.JobSubject(e, job.LowPriority, id), streams.ClassFilter(e, job.LowPriority)},
		{"JobSubject", streams.JobSubject(e, job.LowPriority, id), streams.AnyClass(e, id)},
		{"RecordSubject", streams.RecordSubject(p, e, id, attempt), streams.AnyAttempt(p, e, id)},
		{"DueSubject", streams.DueSubject(p, e, id, attempt), streams.DueFilter(p)},
		{"Nudge", streams.Nudge(e, id), streams.Nudges(e)},
	}
}

func TestEachSubjectMatchesItsFilterAndNoOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, attempt := partitions.Draw(t, "p"), attempts.Draw(t, "attempt")
		e, other := endpointIDs.Draw(t, "endpoint"), endpointIDs.Draw(t, "other endpoint")
		id, otherID := job.ID(jobIDs.Draw(t, "job")), job.ID(jobIDs.Draw(t, "other job"))
		for _, n := range subjectsOf(p, e, id, attempt) {
			if !bus.Covers(n.filter, n.subject) {
				t.Fatalf("%s: %s does not match %s", n.function, n.subject, n.filter)
			}
		}
		if e != other && bus.Covers(streams.AllJobs(other), streams.JobSubject(e, job.Normal, id)) {
			t.Fatalf("the jobs of %s reach %s", e, other)
		}
		if id != otherID && bus.Covers(streams.AnyAttempt(p, e, otherID), streams.RecordSubject(p, e, id, attempt)) {
			t.Fatalf("the records of %s are those of %s", id, otherID)
		}
		if bus.Covers(streams.ClassFilter(e, job.Normal), streams.JobSubject(e, job.LowPriority, id)) {
			t.Fatal("a low-priority job reaches the consumer of normal ones")
		}
		if got := streams.JobOf(streams.Nudge(e, id)); got != id {
			t.Fatalf("got job %s from its nudge, want %s", got, id)
		}
	})
}

// What a function of this package spells is stored by the stream that the map
// says, and a record's headers come out where its waiters listen.
func TestSubjectsReachTheirStreams(t *testing.T) {
	b := start(t)
	ctx := t.Context()
	const id = job.ID("0199a7f2-5c1e-7d11-8a55-0e7b7d3f1c02")
	for name, tt := range map[string]struct{ subject, stream string }{
		"normal job":   {streams.JobSubject(b.e.ID, job.Normal, id), streams.Jobs(b.e.ID)},
		"low priority": {streams.JobSubject(b.e.ID, job.LowPriority, "other"), streams.Jobs(b.e.ID)},
		"record":       {streams.RecordSubject(0, b.e.ID, id, 1), streams.Records(0)},
		"timer":        {streams.DueSubject(0, b.e.ID, id, 1), streams.Records(0)},
		"output":       {streams.OutputSubject(0, b.e.ID, id, 1, 1), streams.Output(0)},
		"input":        {streams.PayloadSubject(0, b.e.ID, id, 1, 0, streams.In, "token"), streams.Payloads(0)},
		"result":       {streams.PayloadSubject(0, b.e.ID, id, 1, 1, streams.Out, "token"), streams.Payloads(0)},
	} {
		ack, err := b.JS.Publish(ctx, tt.subject, nil)
		if err != nil || ack.Stream != tt.stream {
			t.Errorf("%s: %s was stored by %v, %v, want %s", name, tt.subject, ack, err, tt.stream)
		}
	}
	for _, class := range job.Classes() {
		// The server counts a moment after it has acknowledged.
		testenv.Eventually(t, "consumer "+streams.Consumer(class)+" has one job", func() bool {
			c, err := b.JS.Consumer(t.Context(), streams.Jobs(b.e.ID), streams.Consumer(class))
			return err == nil && c.CachedInfo().NumPending == 1
		})
	}
}

func TestARecordsHeadersAreRepeatedForItsWaiters(t *testing.T) {
	b := start(t)
	heard := testenv.Subscribe(t, b.NC, streams.Moved(b.e.ID, "job"))
	for attempt := 1; attempt <= 2; attempt++ {
		m := message(streams.RecordSubject(0, b.e.ID, "job", attempt), "body", "Flightline-Job", fmt.Sprint(attempt))
		if _, err := b.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		got, err := heard.NextMsg(within)
		if err != nil || got.Header.Get("Flightline-Job") != fmt.Sprint(attempt) || len(got.Data) != 0 {
			t.Errorf("attempt %d: got %+v, %v, want its header without its body", attempt, got, err)
		}
	}
}

func TestApplyMayBeRepeatedByManyAtOnce(t *testing.T) {
	b := start(t)
	failed := make(chan error)
	const many = 8
	for range many {
		go func() {
			err := streams.Apply(t.Context(), b.JS, streams.Config{Partitions: 2})
			if err == nil {
				err = streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, b.e)
			}
			failed <- err
		}()
	}
	for range many {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	stream(t, b.JS, streams.Records(1)) // the second partition is there now
}

func TestApplyEndpointAppliesAChangedLease(t *testing.T) {
	b := start(t)
	e := b.e
	e.Lease *= 2
	if _, err := b.JS.Publish(t.Context(), streams.JobSubject(e.ID, job.Normal, "job"), nil); err != nil {
		t.Fatal(err)
	}
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, e); err != nil {
		t.Fatal(err)
	}
	for _, class := range job.Classes() {
		c, err := b.JS.Consumer(t.Context(), streams.Jobs(e.ID), streams.Consumer(class))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CachedInfo().Config.AckWait; got != e.Lease {
			t.Errorf("consumer %s: got a lease of %v, want %v", streams.Consumer(class), got, e.Lease)
		}
	}
	if got := stream(t, b.JS, streams.Jobs(e.ID)).CachedInfo().State.Msgs; got != 1 {
		t.Errorf("got %d jobs, want the one that waited", got)
	}
}

// Settings that would lose acknowledged writes (docs/design/jetstream.md, F3, F5, F9) or
// jobs, had they another value.
func TestSettingsThatLoseNothing(t *testing.T) {
	b := start(t)
	records := stream(t, b.JS, streams.Records(0)).CachedInfo().Config
	if records.SubjectDeleteMarkerTTL != 0 {
		t.Errorf("got delete markers of %v, want none: one erases an acknowledged write", records.SubjectDeleteMarkerTTL)
	}
	if records.Discard != jetstream.DiscardOld || !records.AllowMsgSchedules || !records.AllowMsgTTL || records.MaxAge != 0 {
		t.Errorf("got records kept as %+v", records)
	}
	jobs := stream(t, b.JS, streams.Jobs(b.e.ID)).CachedInfo().Config
	if jobs.MaxAge < job.MaxTTL || jobs.MaxMsgs > 0 || jobs.MaxBytes > 0 {
		t.Errorf("got jobs kept as %+v, want none removed before its ttl", jobs)
	}
	for _, class := range job.Classes() {
		c := streams.ConsumerConfig(b.e, class)
		if c.MaxDeliver != -1 || c.MaxAckPending != -1 || c.AckPolicy != jetstream.AckExplicitPolicy {
			t.Errorf("got consumer %+v, want it to deliver without end", c)
		}
	}
}
