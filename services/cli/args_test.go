package cli_test

import (
	"strings"
	"testing"
)

func TestWrongArgumentsAreNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]string{
		"explain ep":                           "argument JOB is missing; usage: flightline explain ENDPOINT JOB",
		"explain":                              "argument ENDPOINT is missing",
		"events":                               "argument ENDPOINT is missing",
		"events ep j more":                     `unexpected argument "more"`,
		"status ep j more":                     `unexpected argument "more"; usage: flightline status ENDPOINT JOB`,
		"endpoint create -- command":           "argument ID is missing",
		"endpoint create ep more -- x":         `unexpected argument "more"`,
		"run ep {} --ttl 1s":                   "--ttl must be between 10s and 168h, got 1s",
		"run ep {} --execution-timeout 1s":     "--execution-timeout must be between 5s and 168h, got 1s",
		"endpoint create ep --template t -- x": "--driver is missing",
	} {
		got := run(t, map[string]string{"FLIGHTLINE_URL": "http://127.0.0.1:1"}, "", strings.Fields(line)...)
		if got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("%s: got %d %s, want 2 with %q", line, got.code, got.err, want)
		}
	}
}

// Nothing starts the workers of an endpoint whose driver is external, so what
// they are made from decides the driver of a new endpoint.
func TestTheDriverFollowsFromWhatIsGiven(t *testing.T) {
	for line, want := range map[string]string{
		"endpoint create ep":                             `{"id":"ep"}`,
		"endpoint create ep --image i":                   `{"id":"ep","driver":"docker","imageName":"i"}`,
		"endpoint create ep --image i -- x":              `{"id":"ep","driver":"docker","imageName":"i","command":["x"]}`,
		"endpoint create ep -- x":                        `{"id":"ep","driver":"process","command":["x"]}`,
		"endpoint create ep --driver external --image i": `{"id":"ep","driver":"external","imageName":"i"}`,
		"endpoint update ep --image i":                   `{"imageName":"i"}`,
	} {
		if got := sent(t, strings.Fields(line)); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

func TestVersionIsAFlagToo(t *testing.T) {
	flag, command := run(t, nil, "", "--version"), run(t, nil, "", "version")
	if flag != command || flag.code != 0 {
		t.Errorf("got %+v, want %+v", flag, command)
	}
}
