package app

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/bus/embedded"
	"flightline/shared/queue"
	"flightline/shared/storehealth"
	"flightline/shared/testenv"
)

// Of a NATS elsewhere the limit of the account is known, if it has one.
func TestTheSpaceOfAnAccountIsWhatItsLimitLeaves(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	const conf = `accounts {
  BOUND { jetstream: {max_file: 1MB}, users: [{user: bound, password: secret}] }
  FREE { jetstream: enabled, users: [{user: free, password: secret}] }
}`
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(t.Context(), embedded.Config{File: file, Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "bound", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	space := func(user string) (storehealth.Space, jetstream.JetStream) {
		nc := testenv.Connect(t, bus.Config{URL: server.URL(), User: user, Password: "secret"})
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		s, err := accountSpace(js)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s, js
	}
	if s, _ := space("free"); s != (storehealth.Space{}) {
		t.Errorf("no limit: got %+v, want that it is not known", s)
	}
	s, js := space("bound")
	if s.Total != 1_000_000 && s.Total != 1<<20 || s.Free != s.Total || s.Low() {
		t.Errorf("an empty one: got %+v", s)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", make([]byte, s.Total/100*97)); err != nil {
		t.Fatal(err)
	}
	if s, _ = space("bound"); !s.Low() || s.Free == 0 {
		t.Errorf("a nearly full one: got %+v, want low", s)
	}
}

func TestJobsAreRefusedWhileSpaceIsLow(t *testing.T) {
	t.Parallel()
	if s, err := diskSpace(t.TempDir())(t.Context()); err != nil || s.Total == 0 || s.Free > s.Total {
		t.Errorf("the file system: got %+v, %v", s, err)
	}
	m := storehealth.NewSpaceMonitor(storehealth.SpaceConfig{})
	if err := refuseWhile(m, storehealth.Space.Low)(); err != nil {
		t.Errorf("nothing measured: got %v", err)
	}
	err := error(&queue.SpaceError{Shortage: storehealth.Space{Free: 1, Total: 40}.Shortage()})
	if want := "the storage is nearly full: 1 bytes are free, and 2 are kept for jobs that were accepted; try again later"; err.Error() != want || !errors.Is(err, queue.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
}
