package embedded_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/embedded"
)

// store is a store with one stream, whose files a test damages between starts.
type store struct {
	t      *testing.T
	dir    string
	server *embedded.Server
	js     jetstream.JetStream
	body   []byte
}

func newStore(t *testing.T, messages, size int) *store {
	t.Helper()
	s := &store{t: t, dir: t.TempDir(), body: bytes.Repeat([]byte("x"), size)}
	s.start()
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowMsgSchedules: true, AllowRollup: true}
	if _, err := s.js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	s.write(0, messages)
	return s
}

func (s *store) start() {
	s.t.Helper()
	server, err := embedded.Start(s.t.Context(), embedded.Config{Dir: s.dir, Mend: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(server.Stop)
	nc, err := server.Connect("")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	if s.js, err = jetstream.New(nc); err != nil {
		s.t.Fatal(err)
	}
	s.server = server
}

func (s *store) write(from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		m := nats.NewMsg(fmt.Sprintf("s.%d", i))
		m.Header.Set(jetstream.MsgTTLHeader, "1h")
		m.Data = s.body
		if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
			s.t.Fatal(err)
		}
	}
}

// missing lists which of the messages cannot be read.
func (s *store) missing(messages int) (list []int, last uint64) {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "S")
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range messages {
		if _, err := stream.GetLastMsgForSubject(s.t.Context(), fmt.Sprintf("s.%d", i)); err != nil {
			list = append(list, i)
		}
	}
	return list, stream.CachedInfo().State.LastSeq
}

func (s *store) path(file string) string {
	return filepath.Join(s.dir, "jetstream", "$G", "streams", "S", file)
}

// change changes a file.
func (s *store) change(file string, change func([]byte) []byte) {
	s.t.Helper()
	data, err := os.ReadFile(s.path(file))
	if err == nil {
		err = os.WriteFile(s.path(file), change(data), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// garbage overwrites bytes at an offset.
func garbage(at, n int) func([]byte) []byte {
	return func(data []byte) []byte {
		for i := range n {
			data[at+i] = byte(7*i + 13)
		}
		return data
	}
}

func cut(n int) func([]byte) []byte {
	return func(data []byte) []byte { return data[:len(data)-n] }
}

// Damage costs the messages that it hit. What is behind it stays, what is
// accepted afterwards can be read, and no sequence is given twice.
func TestMendLosesNoMoreThanWhatIsDamaged(t *testing.T) {
	t.Parallel()
	const record = 22 + 3 + 4 + 27 + 200 + 8 // about
	tests := map[string]struct {
		messages, size int
		file           string
		damage         func([]byte) []byte
		most           int // messages lost at most, and one at least
		torn           bool
	}{
		"in the middle":             {300, 200, "msgs/1.blk", func(d []byte) []byte { return garbage(len(d)/2, 200)(d) }, 2, false},
		"one byte of a message":     {300, 200, "msgs/1.blk", func(d []byte) []byte { d[len(d)/2] ^= 1; return d }, 1, false},
		"at the beginning":          {300, 200, "msgs/1.blk", garbage(0, 200), 1, false},
		"at the end":                {300, 200, "msgs/1.blk", func(d []byte) []byte { return garbage(len(d)-200, 200)(d) }, 1, true},
		"a page is zero":            {300, 200, "msgs/1.blk", func(d []byte) []byte { clear(d[8192:12288]); return d }, 4096/record + 2, false},
		"one byte is cut off":       {300, 200, "msgs/1.blk", cut(1), 1, true},
		"all but a byte is cut off": {300, 200, "msgs/1.blk", cut(260), 1, true},
		"a page is cut off":         {300, 200, "msgs/1.blk", cut(4096), 4096/record + 2, true},
		"the first of some blocks":  {24, 512 << 10, "msgs/1.blk", func(d []byte) []byte { return garbage(len(d)/2, 200)(d) }, 1, false},
		"the end of the first":      {24, 512 << 10, "msgs/1.blk", func(d []byte) []byte { return garbage(len(d)-100, 100)(d) }, 1, false},
		"all of the last block":     {24, 512 << 10, "msgs/4.blk", func(d []byte) []byte { return garbage(0, len(d))(d) }, 7, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, test.messages, test.size)
			_, before := s.missing(0)
			s.server.Stop()
			s.change(test.file, test.damage)
			s.start()
			found := s.server.Damage()
			if len(found) != 1 || found[0].Stream != "S" || found[0].File != test.file || found[0].Torn != test.torn || found[0].Settings() {
				t.Errorf("got %+v, want one damage of %s, torn %v", found, test.file, test.torn)
			}
			s.write(test.messages, test.messages+5) // before anything is read
			lost, last := s.missing(test.messages + 5)
			if len(lost) == 0 || len(lost) > test.most || lost[len(lost)-1] >= test.messages {
				t.Errorf("got %v lost, want at most %d of those that were damaged", lost, test.most)
			}
			if last < before+5 {
				t.Errorf("got the last sequence %d, want %d or more", last, before+5)
			}
			kept, err := os.ReadDir(filepath.Join(s.dir, embedded.DamagedDir))
			if err != nil || len(kept) != 1 || !strings.Contains(kept[0].Name(), "-S-msgs-") {
				t.Errorf("got %v, %v; want the damaged file kept", kept, err)
			}
			for range 2 {
				s.server.Stop()
				s.start()
				if again, now := s.missing(test.messages + 5); len(s.server.Damage()) != 0 || fmt.Sprint(again) != fmt.Sprint(lost) || now != last {
					t.Errorf("got %+v, %v lost, last %d; want no new damage, %v, %d", s.server.Damage(), again, now, lost, last)
				}
			}
		})
	}
}

// A start changes nothing in a store that is whole: a consumer keeps what was
// delivered and acknowledged.
func TestMendLeavesConsumersAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t, 3, 10)
	c, err := s.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.FetchNoWait(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := (<-batch.Messages()).DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.server.Stop()
		s.start()
		if found := s.server.Damage(); len(found) > 0 {
			t.Errorf("got damage %+v, want none", found)
		}
		c, err = s.js.Consumer(t.Context(), "S", "c")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CachedInfo(); got.AckFloor.Stream != 1 || got.NumAckPending != 1 {
			t.Errorf("got %d acknowledged and %d delivered, want one each", got.AckFloor.Stream, got.NumAckPending)
		}
	}
	s.server.Stop()
	s.change("obs/c/meta.inf", func(d []byte) []byte { d[len(d)/2] ^= 1; return d })
	s.start()
	if found := s.server.Damage(); len(found) != 1 || !found[0].Settings() {
		t.Errorf("got %+v, want the damaged settings of the consumer", found)
	}
}

// Settings that are damaged are put away, so that the stream can be made again
// over its messages.
func TestMendPutsDamagedSettingsAway(t *testing.T) {
	t.Parallel()
	s := newStore(t, 3, 10)
	s.server.Stop()
	s.change("meta.inf", func(d []byte) []byte { d[len(d)/2] ^= 1; return d })
	s.start()
	if found := s.server.Damage(); len(found) != 1 || !found[0].Settings() {
		t.Fatalf("got %+v, want damaged settings", found)
	}
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, MaxMsgsPerSubject: 1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if lost, _ := s.missing(3); len(lost) > 0 {
			t.Errorf("got %v lost, want none", lost)
		}
		s.server.Stop()
		s.start()
	}
}
