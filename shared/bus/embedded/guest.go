package embedded

import (
	"context"
	"crypto/subtle"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Guest is a user who may send requests on some subjects and do nothing else.
// Guests live in an account of their own, which has no JetStream and whose
// requests are passed on: what they publish elsewhere is not, and an
// answer reaches the guest alone, whatever reply subject was asked for. Within
// one account a reply subject is not checked: a client that may ask JetStream for a
// message could have it delivered, and so stored, anywhere.
type Guest struct {
	// User and Password are what the guest must show. Required.
	User, Password string
	// Requests are the subjects, wildcards allowed. An answer may be of several
	// messages.
	Requests []string
}

// guestAuthenticator authenticates guests and other clients.
type guestAuthenticator struct {
	cfg Config
	// accountsReady is closed once the accounts exist, and accounts not written any more.
	accountsReady chan struct{}
	accounts      map[string]*server.Account // by guest
}

func newGuestAuthenticator(cfg Config) *guestAuthenticator {
	return &guestAuthenticator{cfg: cfg, accountsReady: make(chan struct{}), accounts: map[string]*server.Account{}}
}

// prepare makes the accounts of the guests. That must be after the start: a
// server with several accounts at its start enables JetStream in none.
func (d *guestAuthenticator) prepare(ns *server.Server) error {
	main := ns.GlobalAccount()
	for _, guest := range d.cfg.Guests {
		account, err := ns.RegisterAccount("guest-" + guest.User)
		if err != nil {
			return fmt.Errorf("account of %s: %w", guest.User, err)
		}
		for _, subject := range guest.Requests {
			if err := main.AddServiceExportWithResponse(subject, server.Streamed, nil); err != nil {
				return fmt.Errorf("let %s ask %s: %w", guest.User, subject, err)
			}
			if err := account.AddServiceImport(main, subject, subject); err != nil {
				return fmt.Errorf("let %s ask %s: %w", guest.User, subject, err)
			}
		}
		d.accounts[guest.User] = account
	}
	close(d.accountsReady)
	return nil
}

// Check implements server.Authentication.
func (d *guestAuthenticator) Check(c server.ClientAuthentication) bool {
	shown := c.GetOpts()
	if same(shown.Username, d.cfg.User) && same(shown.Password, d.cfg.Password) {
		return true
	}
	for _, guest := range d.cfg.Guests {
		if !same(shown.Username, guest.User) || !same(shown.Password, guest.Password) {
			continue
		}
		within, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		select {
		case <-d.accountsReady:
		case <-within.Done():
			return false
		}
		c.RegisterUser(&server.User{Username: guest.User, Account: d.accounts[guest.User], Permissions: guest.permissions()})
		return true
	}
	return false
}

// permissions keep guests from talking to each other, too, but through inboxes.
func (g Guest) permissions() *server.Permissions {
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: g.Requests},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
