package cli_test

import "testing"

// A misspelt variable would be left out without a word.
func TestAnUnknownVariableIsWarnedOf(t *testing.T) {
	for name, want := range map[string]string{
		"FLIGHTLINE_APIKEY":       "flightline: warning: unknown variable FLIGHTLINE_APIKEY; did you mean FLIGHTLINE_API_KEY?\n",
		"FLIGHTLINE_DATE":         "flightline: warning: unknown variable FLIGHTLINE_DATE; did you mean FLIGHTLINE_DATA?\n",
		"FLIGHTLINE_UNRELATED":    "flightline: warning: unknown variable FLIGHTLINE_UNRELATED\n",
		"FLIGHTLINE_API_KEY_FILE": "",
		"FLIGHTLINE_PATIENCE":     "",
		"FLIGHTLINE_GPU_SHARE":    "", // a driver sets it
		"NATS_ANYTHING":           "",
	} {
		if got := run(t, map[string]string{name: "x"}, "", "version"); got.code != 0 || got.err != want {
			t.Errorf("%s: got %+v, want the warning %q", name, got, want)
		}
	}
}

func TestHintsNameTheProgramAsItWasStarted(t *testing.T) {
	t.Chdir(t.TempDir())
	server := api{"GET /v2/ep/requests": {200, `{"requests":[],"cursor":"c"}`}}.start(t, nil)
	got := runAs(t, "go run ./services/flightline", map[string]string{"FLIGHTLINE_URL": server}, "", "requests", "ep")
	if want := "more: go run ./services/flightline requests ep --cursor c\n"; got.err != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}
