package app

import (
	"errors"
	"testing"

	"flightline/services/cli"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A start that is killed after it was given another API key leaves none behind that opens
// something and that the next start does not know.
func TestAKeyOfAStartThatWasKilledIsReplacedToo(t *testing.T) {
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New(t.Context(), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Data: t.TempDir(), Sync: syncAuto}
	waited := 0
	for _, key := range []string{"key-of-the-first", "key-of-the-second", "key-of-the-third"} {
		cfg.APIKey = key
		h, err := openDataDir(cfg)
		if err != nil {
			t.Fatal(err)
		}
		durable := func() error { waited++; return nil }
		if err := errors.Join(h.replaceKey(t.Context(), reg.Keys, durable), putAdminKey(t.Context(), reg, h.APIKey)); err != nil {
			t.Fatal(err)
		}
		if waited > 0 { // it is killed here, and did not announce itself
			continue
		}
		if err := h.Announce(cfg.Data); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := reg.Keys.List(t.Context())
	if err != nil || len(keys) != 1 || keys[0].Last4 != "hird" || waited != 2 {
		t.Errorf("got the keys %v, %v, after %d waits for the disk, want the third alone after 2", keys, err, waited)
	}
	if kept, err := cli.ReadRunning(cfg.Data); err != nil || kept.APIKey != "key-of-the-third" || kept.URL != "" {
		t.Errorf("got %+v, %v, want the third key and no address", kept, err)
	}
}
