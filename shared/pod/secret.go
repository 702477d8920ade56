package pod

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// keyVariable holds a worker's token.
const keyVariable = "RUNPOD_AI_API_KEY"

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
	// token finds keys by the form that their makers gave them; fl_ and fw_ are ours.
	token = regexp.MustCompile(`\b(?:f[lw]_[A-Za-z0-9_-]{40}|(?:sk-|rpa_|hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA)[A-Za-z0-9_-]{12,})`)
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
// place of the secrets of its environment that have 8 bytes or more, and of what
// has the form of a login or of a key.
func Conceal(text string, env map[string]string) string {
	for _, secret := range secretsOf(env) {
		text = strings.ReplaceAll(text, secret, Hidden)
	}
	text = login.ReplaceAllString(text, "${1}"+Hidden+"@")
	text = given.ReplaceAllString(text, "${1}"+Hidden)
	return token.ReplaceAllString(text, Hidden)
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
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return secrets
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
			return nil, &FieldError{"env." + name, `is "` + Hidden + `", which stands for a value that is kept, and there is none`}
		}
		whole[name] = before
	}
	return whole, checkEnv(whole)
}
