package pod

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Hidden stands for the value of a secret in answers. An update that sends it
// back keeps the value.
const Hidden = "***"

var (
	// secretName finds the words that people put in names of secrets.
	secretName = regexp.MustCompile(`(?i)KEY|SECRET|TOKEN|PASSW|PASSPHRASE|PWD|CREDENTIAL|PRIVATE|AUTH|BEARER|COOKIE|SIGNATURE|(^|_)(PAT|DSN|PASS)($|_)`)
	// login finds the login within an address: scheme://user:password@host, or
	// scheme://token@host.
	login = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s]+@`)
	// given finds what connection strings and signed addresses give: password=….
	given = regexp.MustCompile(`(?i)((?:passw(?:or)?d|pwd|secret|token|signature|key|[?&]sig)=)[^&;\s]+`)
	// lent finds the secret of a job's s3Config in what prints the job: as JSON, in a text of
	// JSON too, and as Python, JavaScript and Go write their values.
	lent = regexp.MustCompile(`(accessSecret\\?["']?\s*:\s*\\?)(?:(["'])(?:[^"'\\]|\\[^"'])+|[^"'\\\s]+)`)
	// token finds keys by the form that their makers gave them; fl_ and fw_ are ours, and the
	// key that dev makes is the shorter one.
	token = regexp.MustCompile(`\b(?:f[lw]_[A-Za-z0-9_-]{40}|fl_[A-Z2-7]{26}\b|(?:sk-|rpa_|hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA)[A-Za-z0-9_-]{12,})`)
)

// Secret reports whether the value of a variable is to be shown to nobody, by
// its name, or because it holds a login or has the form of a key. It errs on the
// side of hiding.
func Secret(name, value string) bool {
	return secretName.MatchString(name) || login.MatchString(value) || given.MatchString(value) || token.MatchString(value)
}

// copied is from how many bytes on a secret is looked for elsewhere.
const copied = 8

// Redact is env with Hidden in place of secrets; never nil. A value that holds a
// secret of 8 bytes or more is hidden too, whatever its name.
func Redact(env map[string]string) map[string]string {
	secrets := secretsOf(env)
	shown := make(map[string]string, len(env))
	for name, value := range env {
		holds := func(secret string) bool { return strings.Contains(value, secret) }
		if value != "" && (Secret(name, value) || slices.ContainsFunc(secrets, holds)) {
			value = Hidden
		}
		shown[name] = value
	}
	return shown
}

// Conceal is text, such as what a program wrote when it ended, with Hidden in
// place of the secrets of its environment that have 8 bytes or more, of the secret of an
// s3Config, and of what has the form of a login or of a key.
func Conceal(text string, env map[string]string) string { return Concealer(env)(text) }

// Concealer is Conceal for many texts. A secret of several lines is hidden by the
// line too, and in the form in which JSON has it.
func Concealer(env map[string]string) func(text string) string {
	var pairs []string
	for _, secret := range spellings(secretsOf(env)) {
		pairs = append(pairs, secret, Hidden)
	}
	known := strings.NewReplacer(pairs...)
	return func(text string) string {
		if len(pairs) > 0 {
			text = known.Replace(text)
		}
		// A look for what each must have costs a hundredth of its expression.
		if strings.Contains(text, "://") {
			text = login.ReplaceAllString(text, "${1}"+Hidden+"@")
		}
		if strings.Contains(text, "=") && containsAny(strings.ToLower(text), "passw", "pwd", "secret", "token", "signature", "key", "sig") {
			text = given.ReplaceAllString(text, "${1}"+Hidden)
		}
		if strings.Contains(text, "accessSecret") {
			text = lent.ReplaceAllString(text, "${1}${2}"+Hidden)
		}
		if containsAny(text, "fl_", "fw_", "sk-", "rpa_", "hf_", "gh", "github_pat_", "glpat-", "xox", "AKIA") {
			text = token.ReplaceAllString(text, Hidden)
		}
		return text
	}
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// spellings are the secrets, their lines, and what JSON makes of either; the longest
// first.
func spellings(secrets []string) []string {
	all := slices.Clone(secrets)
	for _, secret := range secrets {
		for line := range strings.Lines(secret) {
			if line = strings.TrimSpace(line); len(line) >= copied {
				all = append(all, line)
			}
		}
	}
	for _, text := range slices.Clone(all) {
		encoded, err := json.Marshal(text)
		if err != nil {
			continue // strings are always JSON
		}
		if inner := string(encoded[1 : len(encoded)-1]); inner != text {
			all = append(all, inner)
		}
	}
	return longestFirst(all)
}

func longestFirst(texts []string) []string {
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(texts)
}

// secretsOf are the secrets of env that are looked for elsewhere, the longest
// first, for one may be part of another.
func secretsOf(env map[string]string) []string {
	var secrets []string
	for name, value := range env {
		if len(value) >= copied && Secret(name, value) {
			secrets = append(secrets, value)
		}
	}
	return longestFirst(secrets)
}

// Restore is env as an update sent it, with what old has in place of Hidden. It
// returns a *FieldError for a hidden value that old lacks, and for what no
// environment can hold.
func Restore(env, old map[string]string) (map[string]string, error) {
	whole := maps.Clone(env)
	for name, value := range env {
		if value != Hidden {
			continue
		}
		before, was := old[name]
		if !was {
			return nil, &FieldError{"env." + name, `is "` + Hidden + `", which keeps the present value, but it has no value`}
		}
		whole[name] = before
	}
	return whole, checkEnv(whole)
}
