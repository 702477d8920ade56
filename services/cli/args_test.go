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
		"overview more":                        `unexpected argument "more"; usage: flightline overview`,
		"volume create v":                      `unexpected argument "v"; usage: flightline volume create`,
		"volume list v":                        `unexpected argument "v"`,
		"version more":                         `unexpected argument "more"`,
		"key quota k":                          "argument FIELD=NUMBER is missing; usage: flightline key quota ID FIELD=NUMBER...",
		"completion":                           "completion: a subcommand is missing: bash, fish, powershell, zsh",
		"completion foo":                       `unknown command "foo" for "flightline completion"`,
		"completion bash more":                 `unexpected argument "more"; usage: flightline completion bash`,
		"help nosuch":                          `unknown help topic "nosuch"`,
		"help endpoint nosuch":                 `unknown help topic "endpoint nosuch"`,
		"stream ep j --from -1":                `--from must be a whole number, 0 or more, got "-1"`,
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

// Each says the flag, its value and what it must be, and nothing of Go's packages.
func TestAWrongValueOfAFlagIsExplained(t *testing.T) {
	for line, want := range map[string]string{
		"endpoint create ep --workers-max x":         `--workers-max must be a whole number, got "x"`,
		"endpoint create ep --workers-max 1.5":       `--workers-max must be a whole number, got "1.5"`,
		"endpoint create ep --max-queue-bytes 1e9":   `--max-queue-bytes must be a whole number, got "1e9"`,
		"endpoint create ep --workers-max 1" + zeros: `--workers-max must be a whole number in at most 18 digits, got "1` + zeros + `"`,
		"endpoint create ep --min-vram much":         `--min-vram must be a number, got "much"`,
		"endpoint delete ep --force=maybe":           `--force must be true or false, got "maybe"`,
		"endpoint create ep --lease 30":              `--lease must be a duration like 90s or 10m, got "30"`,
		"endpoint create ep --limit run=x":           `--limit must be like run=1000,200, got "run=x"`,
		"logs ep -f=maybe":                           `--follow must be true or false, got "maybe"`,
		"requests ep --status a\"b":                  `--status must be texts with commas between them, got "a\"b"`,
		"status ep j --ttl":                          "flag needs an argument: --ttl",
	} {
		got := run(t, nil, "", strings.Fields(line)...)
		if first, _, _ := strings.Cut(got.err, "\n"); got.code != 2 || first != "flightline: "+want {
			t.Errorf("%s: got %d %s, want 2 with %q", line, got.code, got.err, want)
		}
	}
}

const zeros = "00000000000000000000"

func TestHelpOfCommandsIsFound(t *testing.T) {
	for line, want := range map[string]string{
		"help":                    "Usage:\n  flightline",
		"help endpoint create":    "flightline endpoint create ID",
		"help exit-codes":         "exit codes",
		"help completion bash":    "bash",
		"endpoint create --help":  "--data DIR",
		"completion bash":         "flightline",
		"completion --help":       "Available Commands",
		"__complete help endpoin": "endpoint",
	} {
		if got := run(t, nil, "", strings.Fields(line)...); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: got %+v, want 0 with %q", line, got, want)
		}
	}
}
