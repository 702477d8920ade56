package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/streams"
)

// idOf is an id of one and the same time.
func idOf(i int) job.ID { return job.ID(fmt.Sprintf("01a1fd49-68b2-7072-b537-%012x", i)) }

// success is a delivery that succeeded at the first try, i seconds later than
// that of 0.
func success(id job.ID, i int) Logged {
	return Logged{Delivery: Delivery{
		Endpoint: "ep", Job: id, Attempt: 1, Try: 1, Outcome: Delivered, Status: 200, URL: "http://h:80/", Answer: "ok",
		Started: time.Date(2026, 11, 21, 12, 0, i, 0, time.UTC), Took: time.Millisecond,
	}}
}

func (s *site) logAll(t *testing.T, list ...Logged) {
	t.Helper()
	for i, err := range s.q.LogDeliveries(t.Context(), list) {
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

func TestWhichDeliveriesShareAMessage(t *testing.T) {
	id := func() Logged { return success(idOf(0), 0) }
	with := func(change func(*Logged)) Logged {
		d := id()
		change(&d)
		return d
	}
	tests := map[string]struct {
		list []Logged
		want string
	}{
		"none":                 {nil, "[]"},
		"one":                  {[]Logged{id()}, "[1]"},
		"first tries":          {[]Logged{id(), id(), id()}, "[3]"},
		"a second try":         {[]Logged{id(), with(func(d *Logged) { d.Try, d.After = 2, 7 }), id()}, "[2 1]"},
		"a replay":             {[]Logged{id(), id(), with(func(d *Logged) { d.Replay = "r" })}, "[2 1]"},
		"a failure":            {[]Logged{id(), id(), with(func(d *Logged) { d.Outcome = DeliveryFailed })}, "[2 1]"},
		"an id without a time": {[]Logged{id(), id(), with(func(d *Logged) { d.Job = "j1" })}, "[2 1]"},
		"another endpoint":     {[]Logged{id(), id(), with(func(d *Logged) { d.Endpoint = "other" })}, "[2 1]"},
		"too large":            {[]Logged{id(), with(func(d *Logged) { d.URL = strings.Repeat("x", 100<<10) }), id()}, "[1 1 1]"},
	}
	for name, test := range tests {
		got := []int{}
		for _, p := range pagesOf(test.list) {
			got = append(got, len(p.at))
		}
		slices.Sort(got)
		want := strings.Split(strings.Trim(test.want, "[]"), " ")
		slices.Sort(want)
		if fmt.Sprint(got) != fmt.Sprint(want) && test.want != "[]" || test.want == "[]" && len(got) > 0 {
			t.Errorf("%s: got messages of %v, want %v", name, got, want)
		}
	}
}

func TestDeliveriesThatShareAMessageAreFoundByTheirJob(t *testing.T) {
	s := newSite(t)
	ids := make([]job.ID, 10)
	list := make([]Logged, 10)
	for i := range ids {
		ids[i] = idOf(i)
		list[i] = success(ids[i], i)
	}
	s.logAll(t, list...)
	s.logAll(t, list[:2]...) // the answer was lost
	if n := s.left(t, streams.Deliveries); n > 4 {
		t.Errorf("got %d messages for 12 deliveries, want 4 at most", n)
	}
	again := success(ids[3], 20)
	again.Replay = "r1"
	s.logAll(t, again)
	for i, id := range ids {
		got, next, err := s.q.Deliveries(t.Context(), "ep", DeliveriesOf{Job: id, Most: 10})
		want := 1
		if i == 3 {
			want = 2
		}
		if err != nil || next != 0 || len(got) != want {
			t.Fatalf("%d: got %+v, %d, %v, want %d", i, got, next, err, want)
		}
		first := got[len(got)-1]
		first.Seq, first.Index = 0, 0
		if first != list[i].Delivery {
			t.Errorf("%d: got %+v, want %+v", i, first, list[i].Delivery)
		}
	}
	for what, which := range map[string]DeliveriesOf{
		"later": {Job: ids[0], Since: list[1].Started, Most: 10}, "failed": {Job: ids[0], Failed: true, Most: 10}, "another": {Job: NewID(job.Async), Most: 10},
	} {
		if got, _, err := s.q.Deliveries(t.Context(), "ep", which); err != nil || len(got) != 0 {
			t.Errorf("%s: got %+v, %v, want none", what, got, err)
		}
	}
}

// A page may end within a message.
func TestDeliveriesThatShareAMessageAreListed(t *testing.T) {
	s := newSite(t)
	const messages, each = 70, 5 // more than a window
	var want []job.ID
	for range messages {
		var list []Logged
		for range each {
			list = append(list, success(idOf(len(want)), len(want)))
			want = append(want, list[len(list)-1].Job)
		}
		s.logAll(t, list...)
	}
	slices.Reverse(want)
	var got []job.ID
	which := DeliveriesOf{Most: 7}
	for {
		page, next, err := s.q.Deliveries(t.Context(), "ep", which)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page {
			got = append(got, d.Job)
		}
		if which.Before = next; next == 0 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d deliveries, want %d, each once and the last one first", len(got), len(want))
	}
}

// After a crash a completion comes again whose success was logged with others.
func TestTheLastDeliveryMayShareAMessage(t *testing.T) {
	s := newSite(t)
	id := s.ended(t, `{}`)
	from := s.completions(t)
	c := nextCompletion(t, from)
	if d, err := s.q.LastDelivery(t.Context(), c); err != nil || d != (Delivery{}) {
		t.Errorf("got %+v, %v, want none", d, err)
	}
	beside := func(attempt int) Logged {
		d := success(id, attempt)
		d.Attempt = attempt
		return d
	}
	s.logAll(t, beside(1), beside(2), beside(3))
	for range 2 { // the second time without a look at the log
		if d, err := s.q.LastDelivery(t.Context(), c); err != nil || d.Outcome != Delivered || d.Try != 1 || d.Seq == 0 {
			t.Errorf("got %+v, %v, want the success", d, err)
		}
	}
	c.Replay = "r1"
	if d, err := s.q.LastDelivery(t.Context(), c); err != nil || d != (Delivery{}) {
		t.Errorf("a replay: got %+v, %v, want none", d, err)
	}
}

// The log has what encoding/json would have written.
func TestFirstTriesAsEncodingJSONHasThem(t *testing.T) {
	list := []Logged{success(idOf(1), 1), success(idOf(2), 2), success(idOf(3), 3)}
	list[1].Answer, list[1].URL = "a \"b\"\n<é>", "https://h/?a&b"
	list[2].Answer, list[2].Started = "", time.Date(2026, 1, 2, 3, 4, 5, 670, time.FixedZone("", 3600))
	m, err := firstTriesMessage("s", list, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	var got []firstTry
	if err := json.Unmarshal(m.Data, &got); err != nil {
		t.Fatalf("%s: %v", m.Data, err)
	}
	for i, d := range list {
		want := firstTry{d.Job, d.Attempt, d.Started, d.Took, d.URL, d.Status, d.Answer}
		if !got[i].Started.Equal(want.Started) {
			t.Errorf("%d: got %v, want %v", i, got[i].Started, want.Started)
		}
		if got[i].Started = want.Started; got[i] != want {
			t.Errorf("%d: got %+v, want %+v", i, got[i], want)
		}
	}
	if got, err := firstTriesMessage("s", list, []int{2}); err != nil || !strings.Contains(string(got.Data), string(idOf(3))) || strings.Contains(string(got.Data), string(idOf(1))) {
		t.Errorf("got %s, %v, want the last one only", got.Data, err)
	}
}
