package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"flightline/services/cli"
	"flightline/shared/testenv"
)

// On a terminal an endpoint is not removed by a slip; scripts are not asked.
func TestRemovingAnEndpointAsksOnATerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, tt := range map[string]struct {
		typed, flag string
		code        int
	}{
		"no": {"n\n", "", 1}, "yes": {"y\n", "", 0}, "not asked": {"", "--yes", 0}, "forced": {"", "--force", 0},
	} {
		var seen http.Request
		server := api{"DELETE /v1/endpoints/ep": {204, ``}, "DELETE /v1/endpoints/ep?force=true": {204, ``}}.start(t, &seen)
		person, program := testenv.Terminal(t, 80)
		if _, err := person.WriteString(tt.typed); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cfg := cli.Config{Env: map[string]string{"FLIGHTLINE_URL": server}, In: program, Out: &out, Err: program}
		code := cli.Run(t.Context(), cfg, append([]string{"endpoint", "delete", "ep"}, strings.Fields(tt.flag)...))
		if code != tt.code || (code == 0) != (seen.Method == http.MethodDelete) {
			t.Errorf("%s: got code %d and the request %q, want code %d", name, code, seen.Method, tt.code)
		}
	}
}

// An error may be a whole traceback; each event is a line all the same.
func TestEventsFitTheTerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	const id = "01a208f7-6692-7f2a-94fc-97e500b9862a"
	event := `{"specversion":"1.0","id":"1","source":"/v2/ep","type":"job.failed","time":"2026-11-23T15:00:00Z","subject":"` + id + `",` +
		`"data":{"id":"` + id + `","workerId":"` + id + `","attempt":1,"run":1,"error":"` + strings.Repeat("a line of the traceback ", 20) + `"}}`
	server := api{"GET /v2/ep/events?follow=false": {200, "id: 1\nevent: job.failed\ndata: " + event + "\n\nevent: end\ndata: {}\n\n"}}.start(t, nil)
	person, program := testenv.Terminal(t, 80)
	var errs bytes.Buffer
	code := cli.Run(t.Context(), cli.Config{Env: map[string]string{"FLIGHTLINE_URL": server, "FLIGHTLINE_RETRY_TIMEOUT": "0s"}, In: program, Out: program, Err: &errs}, []string{"events", "ep"})
	_ = program.Close()
	shown, _ := io.ReadAll(person) // ends with EIO, as nobody holds the other side
	if code != 0 || !strings.Contains(string(shown), "job.failed") {
		t.Errorf("got code %d, %s%s, want the event", code, shown, &errs)
	}
	for line := range strings.SplitSeq(string(shown), "\r\n") {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("got a line of more than 80 columns: %s", line)
		}
	}
}
