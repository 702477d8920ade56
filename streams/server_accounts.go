package streams

import (
	"cmp"
	"slices"
	"strings"

	"flightline/shared/bus"
)

// guests are the roles that have an account of their own, without JetStream. NATS
// checks the subject of a request but not where its answer is to go: within one
// account a client may have an answer, with a payload of its choice, stored in
// any stream. A request of a guest is passed on by an import. The server answers
// it on a subject of its own, which leads to the guest's account and nowhere else
// (docs/adr/0035).
func guests() []Role { return []Role{RoleWorker, RoleReader} }

// accountOf names the account of a guest.
func accountOf(r Role) string { return strings.ToUpper(string(r)) }

// accounts writes the account FLIGHTLINE, with JetStream, for all roles that are no guests,
// and an account for each guest that has a password.
func (s ServerConfig) accounts(line func(string, ...any)) {
	present := slices.DeleteFunc(guests(), func(r Role) bool { return s.Passwords[r] == "" })
	line("  FLIGHTLINE {")
	line("    jetstream: enabled")
	line("    users: [")
	for _, r := range Roles() {
		if !slices.Contains(guests(), r) {
			s.user(line, r)
		}
	}
	line("    ]")
	line("    exports: [")
	for _, r := range present {
		s.exports(line, r)
	}
	line("    ]")
	line("  }")
	for _, r := range present {
		s.guest(line, r)
	}
}

// exports allows the imports of a guest. Those of a worker share one export: the
// server then takes an answer that leads to another import for a cycle, and drops
// it. Else a worker of all endpoints could send, as an answer, a request that its
// deny list refuses.
func (s ServerConfig) exports(line func(string, ...any), r Role) {
	p := s.permissions(r)
	if r == RoleWorker {
		line("      { service: %q, response_type: singleton, accounts: [%s] }", ">", accountOf(r))
	} else {
		for _, subject := range p.Publish {
			line("      { service: %q, response_type: stream, accounts: [%s] }", subject, accountOf(r))
		}
	}
	for _, subject := range p.subscribes(r) {
		line("      { stream: %q, accounts: [%s] }", subject, accountOf(r))
	}
}

// guest writes the account of a guest.
func (s ServerConfig) guest(line func(string, ...any), r Role) {
	p := s.permissions(r)
	line("  %s {", accountOf(r))
	line("    users: [")
	s.user(line, r)
	line("    ]")
	line("    mappings: {")
	for _, prefix := range ownAPI() {
		line("      %q: %q", prefix+">", imported(prefix)+">")
	}
	line("    }")
	line("    imports: [")
	for _, subject := range widest(p.Publish) {
		line("      { service: { account: FLIGHTLINE, subject: %q }, to: %q }", subject, imported(subject))
	}
	for _, subject := range p.subscribes(r) {
		line("      { stream: { account: FLIGHTLINE, subject: %q } }", subject)
	}
	line("    ]")
	line("  }")
}

// ownAPI are the subjects on which the server answers in every account, in one
// without JetStream that it has none. There a guest's request gets another
// subject before it is passed on, so that it is answered once.
func ownAPI() []string { return []string{"$JS.API.STREAM.", "$JS.API.CONSUMER.INFO."} }

// widest returns the filters that no other one covers: a request that two
// imports match is passed on twice.
func widest(filters []string) []string {
	return slices.DeleteFunc(slices.Clone(filters), func(f string) bool {
		return slices.ContainsFunc(filters, func(other string) bool { return other != f && bus.Covers(other, f) })
	})
}

// imported is the subject in a guest's account of what is imported as subject.
func imported(subject string) string {
	for _, prefix := range ownAPI() {
		if strings.HasPrefix(subject, prefix) {
			return "imported." + strings.TrimPrefix(subject, "$")
		}
	}
	return subject
}

func mapped(subjects []string) []string {
	all := make([]string, 0, len(subjects))
	for _, subject := range subjects {
		all = append(all, imported(subject))
	}
	return all
}

func (s ServerConfig) permissions(r Role) Permissions {
	return PermissionsOf(s.Config, r, cmp.Or(s.Endpoint, "*"))
}

// subscribes returns the subjects of other roles that a role may subscribe to: all but its
// inbox.
func (p Permissions) subscribes(r Role) []string {
	return slices.DeleteFunc(slices.Clone(p.Subscribe), func(subject string) bool {
		return strings.HasPrefix(subject, InboxPrefix(r)+".")
	})
}

func (s ServerConfig) user(line func(string, ...any), r Role) {
	password := s.Passwords[r]
	if password == "" {
		return
	}
	p := s.permissions(r)
	if slices.Contains(guests(), r) { // they are checked after the mapping
		p.Publish, p.Deny = mapped(p.Publish), mapped(p.Deny)
	}
	line("      { user: %s, password: %s, permissions: {", r, quoted(password))
	line("        publish: { allow: [%s]%s }", list(p.Publish), deny(p.Deny))
	line("        subscribe: { allow: [%s] }", list(p.Subscribe))
	line("      } }")
}
