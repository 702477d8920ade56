package embedded_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"flightline/shared/bus/embedded"
)

// A start after a kill rebuilds the index of each stream. That is no warning; what
// may mean a loss is.
func TestARebuiltIndexIsNoWarning(t *testing.T) {
	for text, want := range map[string]string{
		"Filestore [KV_keys] Stream state outdated, last block has additional entries, will rebuild":                           "",
		"Filestore [KV_keys] Recovering stream state from index errored: prior state file":                                     "",
		"Filestore [KV_records_0] TTL state is outdated; attempting to recover using linear scan (seq 3 to 26)":                "",
		"Filestore [KV_records_0] Message scheduling state is outdated; attempting to recover using linear scan (seq 3 to 26)": "",
		"Filestore [JOBS_echo] Stream state detected prior state, could not locate msg block 2":                                "",
		"Filestore [KV_records_0] Stream state detected prior state, could not locate msg block 2":                             "WARN",
		"Filestore [KV_keys] Recovering stream state from index errored: corrupt state file":                                   "WARN",
		"Filestore [KV_keys] Stream state checksum did not match":                                                              "WARN",
		"Filestore [KV_keys] indexCacheBuf corrupt record state in 1.blk: dlen 1 slen 2 index 3 rl 4 lbuf 5":                   "WARN",
		"JetStream resource limits exceeded for server":                                                                        "WARN",
	} {
		var log bytes.Buffer
		embedded.NewLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))).Warnf("%s", text)
		if got := log.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, want level %q", text, got, want)
		}
	}
}

// Workers of an installation that is no more go on trying with its password.
func TestWrongPasswordsDoNotFillTheLog(t *testing.T) {
	var log bytes.Buffer
	l := embedded.NewLogger(slog.New(slog.NewTextHandler(&log, nil)))
	for range 1000 {
		l.Errorf("%s - %s - User %q", "127.0.0.1:35746 - cid:21", server.ErrAuthentication, "flightline")
	}
	l.Errorf("no space left on device")
	if got := strings.Count(log.String(), "authentication error"); got != 5 {
		t.Errorf("got %d lines of 1000 wrong passwords, want 5", got)
	}
	if !strings.Contains(log.String(), "no space left") {
		t.Error("got no line of another error")
	}
}
