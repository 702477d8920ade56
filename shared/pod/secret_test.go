package pod

import (
	"crypto/rand"
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestSecretsAreHiddenAndKept(t *testing.T) {
	env := map[string]string{
		"MODEL": "small", "PORT": "80", "EMPTY_TOKEN": "", "RUNPOD_AI_API_KEY": "fw_0123456789", "COPY": "fw_0123456789", "ARGS": "--with fw_0123456789",
		"HF_TOKEN": "x", "AWS_SECRET": "x", "DB_PASSWORD": "x", "PGPASSWORD": "x", "GOOGLE_CREDENTIALS": "x", "DB": "postgres://u:p@h/d", "URL": "https://h/a@b:c",
	}
	want := map[string]string{
		"MODEL": "small", "PORT": "80", "EMPTY_TOKEN": "", "RUNPOD_AI_API_KEY": Hidden, "COPY": Hidden, "ARGS": Hidden,
		"HF_TOKEN": Hidden, "AWS_SECRET": Hidden, "DB_PASSWORD": Hidden, "PGPASSWORD": Hidden, "GOOGLE_CREDENTIALS": Hidden, "DB": Hidden, "URL": "https://h/a@b:c",
	}
	shown := Redact(env)
	if !maps.Equal(shown, want) {
		t.Errorf("got %v, want %v", shown, want)
	}
	if back, err := Restore(shown, env); err != nil || !maps.Equal(back, env) {
		t.Errorf("got %v %v, want what there was", back, err)
	}
	if _, err := Restore(map[string]string{"NEW": Hidden}, env); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want an error for a hidden value of nothing", err)
	}
	if Redact(nil) == nil {
		t.Error("got nil, want an object")
	}
}

func TestSecret(t *testing.T) {
	ours := "fw_" + strings.Repeat("aB3_-", 8)
	for variable, want := range map[string]bool{
		"MODEL=small": false, "PORT=80": false, "PATH=/bin:/usr/bin": false, "URL=https://h/a@b:c": false, "OPT=--beams=4": false,
		"MAIL=me@example.com": false, "RUN=fw_short": false, "TASK=task-list": false, "BIN=/opt/hf_transfer/bin": false,
		"FLAG=fl_a_name_of_more_than_26_letters": false, "X=fl_" + rand.Text(): true,
		"BEARER=x": true, "X=" + ours: true, "ARGS=--login " + ours: true, "X=sk-0123456789abcdef": true,
		"REPO=https://ghs_x@github.com/a/b": true, "INDEX=--index https://u:p@h/simple": true,
		"DB=host=h password=x": true, "BLOB=AccountName=a;AccountKey=x": true, "FILE=https://h/f?sv=1&sig=x": true,
	} {
		name, value, _ := strings.Cut(variable, "=")
		if got := Secret(name, value); got != want {
			t.Errorf("%s: got %v, want %v", variable, got, want)
		}
	}
}

func TestWhatAProgramWroteIsToldWithoutSecrets(t *testing.T) {
	env := map[string]string{"HF_TOKEN": "sesame-open", "LONGER_KEY": "sesame-open-2", "PIN_KEY": "1234", "MODEL": "small-model"}
	ours := "fw_" + strings.Repeat("aB3_-", 8)
	for text, want := range map[string]string{
		"code 1: no model small-model at port 1234":            "code 1: no model small-model at port 1234",
		"401 for sesame-open-2, then sesame-open":              "401 for ***, then ***",
		"{'RUNPOD_AI_API_KEY': '" + ours + "', 'A': '1'}":      "{'RUNPOD_AI_API_KEY': '***', 'A': '1'}",
		"using fl_" + rand.Text() + ", the key of dev":         "using ***, the key of dev",
		"no route to postgres://u:p@h/d":                       "no route to postgres://***@h/d",
		`{"s3Config": {"accessSecret": "a/b+c,d", "b": 1}}`:    `{"s3Config": {"accessSecret": "***", "b": 1}}`,
		`{"message": "{\"accessSecret\":\"a\\u0026b\"}"}`:      `{"message": "{\"accessSecret\":\"***\"}"}`,
		"{'accessSecret': 'a b', 'bucketName': 'b'}":           "{'accessSecret': '***', 'bucketName': 'b'}",
		"{ accessSecret: 'ab', bucketName: 'b' }":              "{ accessSecret: '***', bucketName: 'b' }",
		"map[accessSecret:ab bucketName:b]":                    "map[accessSecret:*** bucketName:b]",
		"no accessSecret":                                      "no accessSecret",
		"bad dsn: host=h password=x user=u":                    "bad dsn: host=h password=*** user=u",
		"GET https://s3/b?X-Amz-Signature=0a&X-Amz-Date=1 403": "GET https://s3/b?X-Amz-Signature=***&X-Amz-Date=1 403",
		"": "",
	} {
		if got := Conceal(text, env); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Each form of a secret is hidden in a text that has nothing else of one: Concealer looks
// for a part of the form first.
func TestConcealKnowsEachFormByItself(t *testing.T) {
	const rest = "0123456789012345678901234567890123456789"
	for _, form := range []string{
		"fl_", "fw_", "sk-", "rpa_", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "AKIA",
		"password=", "passwd=", "PWD=", "Secret=", "token=", "signature=", "KEY=", "?sig=", "&sig=", "amqp://me:",
	} {
		text := form + rest
		if strings.HasPrefix(form, "amqp") {
			text += "@host"
		}
		if got := Conceal("it printed "+text, nil); strings.Contains(got, rest) {
			t.Errorf("got %q", got)
		}
	}
}
