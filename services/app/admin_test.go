package app

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"flightline/services/cli"
	"flightline/streams"
)

// Without an address, what an operator does goes to the NATS of the dev that
// runs here, or nowhere: not to another one on this machine, with the password
// of the dev or without any.
func TestAnOperatorsCommandGoesToNoOtherNATS(t *testing.T) {
	dir := t.TempDir()
	backup := filepath.Join(t.TempDir(), "backup")
	for want, running := range map[string]cli.Running{
		"Give --nats-url":   {},
		"--nats-listen off": {URL: "http://127.0.0.1:1", NATSUser: "flightline", NATSPassword: "hush"},
	} {
		if err := running.Announce(dir); err != nil {
			t.Fatal(err)
		}
		for _, line := range [][]string{{"backup", backup}, {"restore", backup}, {"doctor", "--fix"}} {
			err := refusal(t, nil, append(line, "--data", dir)...)
			coded, ok := errors.AsType[*cli.CodedError](err)
			if !ok || coded.Code != cli.ExitUnreachable || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: got %v, want %q", line, err, want)
			}
		}
	}
}

// A start that would take copies away, or on half a backup, is not tried again.
func TestWhatTimeDoesNotHealIsRefusedAtOnce(t *testing.T) {
	for _, err := range []error{streams.ErrReplicas, streams.ErrRestoring} {
		if away(err) {
			t.Errorf("%v: got that time may heal it", err)
		}
	}
}
