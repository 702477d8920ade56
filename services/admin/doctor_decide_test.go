package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestAged(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]State{
		"2.9.25": Fail, "2.13.9": Fail, "2.14.0-RC.1": Warn, "2.14.0": Warn, "2.15.1": Warn, "2.15.2": OK, "2.15.3-beta": OK, "2.16.0": OK, "3.0.0": OK, "dev": OK,
	} {
		if got, hint := aged(version); got != want || (hint == "") != (want == OK) {
			t.Errorf("%s: got %s with the hint %q, want %s", version, got, hint, want)
		}
	}
}

func TestApart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		offset, trip time.Duration
		want         State
	}{
		{0, 0, OK},
		{time.Second, 0, OK},
		{1100 * time.Millisecond, 0, Warn},
		{-1100 * time.Millisecond, 0, Warn},
		{1100 * time.Millisecond, 200 * time.Millisecond, OK}, // it is not known so exactly
		{-time.Hour, 200 * time.Millisecond, Warn},
	} {
		if got := apart(test.offset, test.trip); got != test.want {
			t.Errorf("%v in a trip of %v: got %s, want %s", test.offset, test.trip, got, test.want)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for _, test := range []struct {
		used  uint64
		limit int64
		want  State
	}{
		{mb, -1, OK}, {mb, 0, OK}, {70 * mb, 100 * mb, OK}, {80 * mb, 100 * mb, Warn}, {94 * mb, 100 * mb, Warn}, {95 * mb, 100 * mb, Fail}, {200 * mb, 100 * mb, Fail},
	} {
		if got, text := usage(test.used, test.limit); got != test.want {
			t.Errorf("%d of %d: got %s %q, want %s", test.used, test.limit, got, text, test.want)
		}
	}
}

// A role that was killed with messages in hand does not look as if it were at work.
func TestUnclaimedMessages(t *testing.T) {
	t.Parallel()
	now := time.Now()
	lately, long := now.Add(-time.Second), now.Add(-maxInHand-time.Second)
	for name, tt := range map[string]struct {
		info jetstream.ConsumerInfo
		want uint64
	}{
		"nothing is there":                          {jetstream.ConsumerInfo{}, 0},
		"it waits, and nobody asks":                 {jetstream.ConsumerInfo{NumPending: 3}, 3},
		"somebody asks":                             {jetstream.ConsumerInfo{NumPending: 3, NumAckPending: 2, NumWaiting: 1}, 0},
		"a process is full":                         {jetstream.ConsumerInfo{NumPending: 3, NumAckPending: 2, Delivered: jetstream.SequenceInfo{Last: &lately}}, 0},
		"what a process had was put off":            {jetstream.ConsumerInfo{NumAckPending: 2, NumWaiting: 1, Delivered: jetstream.SequenceInfo{Last: &long}}, 0},
		"its process is gone":                       {jetstream.ConsumerInfo{NumPending: 3, NumAckPending: 2, Delivered: jetstream.SequenceInfo{Last: &long}}, 5},
		"its process is gone, and nothing came":     {jetstream.ConsumerInfo{NumAckPending: 2, Delivered: jetstream.SequenceInfo{Last: &long}}, 2},
		"the server was restarted since, and waits": {jetstream.ConsumerInfo{NumPending: 3, NumAckPending: 2}, 5},
	} {
		tt.info.TimeStamp = now
		if got := unclaimedMessages(&tt.info); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

// A copy is a few writes behind while the stream is written: that is no reason to look at
// its server. A server that is cut off, or whose JetStream is off, is not offline to NATS.
func TestCopyState(t *testing.T) {
	for name, tt := range map[string]struct {
		peer jetstream.PeerInfo
		want State
	}{
		"current":           {jetstream.PeerInfo{Current: true, Active: time.Second}, OK},
		"a write behind":    {jetstream.PeerInfo{Lag: 1, Active: time.Second}, OK},
		"at the bound":      {jetstream.PeerInfo{Lag: maxLag}, OK},
		"far behind":        {jetstream.PeerInfo{Lag: maxLag + 1}, Warn},
		"silent":            {jetstream.PeerInfo{Active: maxPeerSilence + time.Second}, Fail},
		"silent, no writes": {jetstream.PeerInfo{Current: true, Active: maxPeerSilence + time.Second}, OK},
		"offline":           {jetstream.PeerInfo{Offline: true, Active: time.Second}, Fail},
	} {
		if got := copyState(&tt.peer); got != tt.want {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// One server that is away has copies of all streams: that is a line, not one for each.
func TestCopiesOfAServerAreALine(t *testing.T) {
	servers := map[string]*serverCopies{}
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		sortCopies(servers, &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: name, Replicas: 3}, Cluster: &jetstream.ClusterInfo{
			Leader: "n1", Replicas: []*jetstream.PeerInfo{{Name: "n2", Lag: 2000}, {Name: "n3", Offline: true, Active: time.Minute}},
		}})
	}
	sortCopies(servers, &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "one", Replicas: 1}})
	x := &checker{}
	x.copies(servers)
	var got []string
	for _, f := range x.report.Findings {
		got = append(got, f.Check+": "+f.State+", "+f.Text)
	}
	want := []string{
		"copies on n2: warn, not current: A is 2000 behind, B is 2000 behind, C is 2000 behind and 2 more",
		"copies on n3: fail, offline, last heard of 1m0s ago: A, B, C and 2 more",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The clock of one server of three may be wrong while that server leads neither the records nor
// the endpoints.
func TestEachServersClockIsCompared(t *testing.T) {
	asked := time.Now()
	answered := asked.Add(100 * time.Millisecond)
	of := func(leader string, at time.Time) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{TimeStamp: at, Cluster: &jetstream.ClusterInfo{Leader: leader}}
	}
	x := &checker{}
	x.clocks(map[string]*jetstream.StreamInfo{
		"right": of("n0", asked.Add(50*time.Millisecond)), "slightly ahead": of("n1", answered.Add(maxClockOffset)),
		"ahead": of("n2", answered.Add(5*time.Minute)), "behind": of("n3", asked.Add(-time.Hour)),
		"alone": {TimeStamp: asked.Add(time.Hour)}, "without a leader": of("", asked.Add(time.Hour)),
	}, asked, answered)
	var got []string
	for _, f := range x.report.Findings {
		got = append(got, f.Check+": "+f.State+", "+f.Text)
	}
	want := []string{"clock of n2: warn, it is 5m0s ahead of this machine", "clock of n3: warn, it is -1h0m0s ahead of this machine"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
