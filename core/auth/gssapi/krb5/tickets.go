// Package krb5 obtains Kerberos tickets and makes security contexts of them, for package gssapi.
// It reads what MIT Kerberos reads: krb5.conf, a client keytab or a credential cache, from where
// the environment says. gokrb5 does the work; no other package knows it.
package krb5

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/gssapi"
)

// margin is how long a cached ticket must be valid still.
const margin = time.Minute

var _ gssapi.Initiator = (*Initiator)(nil)

// Initiator fetches tickets from a key distribution center (KDC), and caches those of services.
// Its methods may be called at any time.
type Initiator struct {
	getenv func(string) string

	mu      sync.Mutex
	tickets map[gssapi.Service]*ticket // guarded by mu
}

// ticket holds what the KDC gave for a service. It is not changed.
type ticket struct {
	user    auth.User
	client  principal
	ticket  messages.Ticket
	key     types.EncryptionKey // the session key
	expires time.Time
}

type principal struct {
	name  types.PrincipalName
	realm string
}

// New returns an initiator without tickets. It finds its files through the environment's variables
// KRB5_CONFIG, KRB5_CLIENT_KTNAME and KRB5CCNAME; a nil getenv stands for os.Getenv.
func New(getenv func(name string) string) *Initiator {
	if getenv == nil {
		getenv = os.Getenv
	}
	return &Initiator{getenv: getenv, tickets: map[gssapi.Service]*ticket{}}
}

// Initiate returns a context with a ticket for the service, the cached one if it is the user's and
// is valid for a minute.
func (i *Initiator) Initiate(
	ctx context.Context, s gssapi.Service, u auth.User,
) (gssapi.SecurityContext, error) {
	if t := i.load(s); t != nil && t.user == u && time.Until(t.expires) > margin {
		return &securityContext{service: s, ticket: t, cached: true}, nil
	}
	t, err := i.fetch(ctx, s, u)
	if err != nil {
		return nil, fmt.Errorf("obtain a ticket for %s/%s: %w", s.Name, s.Host, err)
	}
	i.store(s, t)
	return &securityContext{service: s, ticket: t}, nil
}

// store keeps a ticket, and drops those that have expired: their services may be gone.
func (i *Initiator) store(s gssapi.Service, t *ticket) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.tickets, func(_ gssapi.Service, old *ticket) bool {
		return time.Until(old.expires) <= 0
	})
	i.tickets[s] = t
}

func (i *Initiator) load(s gssapi.Service) *ticket {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tickets[s]
}

// Refused drops the context's ticket. A new one may succeed if that one was cached: the service's
// key may have changed.
func (i *Initiator) Refused(c gssapi.SecurityContext) (again bool) {
	refused := c.(*securityContext)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tickets[refused.service] == refused.ticket {
		delete(i.tickets, refused.service)
	}
	return refused.cached
}

// fetch runs the exchange in a goroutine of its own, since gokrb5 cannot be interrupted: if ctx
// ends first, that goroutine ends by the library's time-outs (5 s for each message and KDC), and
// its result is dropped.
func (i *Initiator) fetch(ctx context.Context, s gssapi.Service, u auth.User) (*ticket, error) {
	type result struct {
		ticket *ticket
		err    error
	}
	got := make(chan result, 1)
	go func() {
		t, err := i.exchange(s, u)
		got <- result{t, err}
	}()
	select {
	case r := <-got:
		return r.ticket, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// exchange asks for a ticket-granting ticket, unless there is one, and then for the service's. A
// panic is an error: gokrb5 does not check all lengths in files and in a KDC's messages.
func (i *Initiator) exchange(s gssapi.Service, u auth.User) (t *ticket, err error) {
	defer func() {
		if recover() != nil {
			t, err = nil, errors.New("a Kerberos file or a message of the KDC is malformed")
		}
	}()
	conf, err := i.config()
	if err != nil {
		return nil, err
	}
	cl, err := i.client(conf, u)
	if err != nil {
		return nil, err
	}
	defer cl.Destroy() // ends what a referral to another realm starts
	home := cl.Credentials.Domain()
	tgt, err := i.grantingTicket(cl, home)
	if err != nil {
		return nil, err
	}
	realm := s.Realm
	if realm == "" {
		realm = conf.ResolveRealm(strings.ToLower(s.Host))
	}
	if realm == "" {
		realm = home
	}
	if realm != home {
		if tgt, err = tgt.exchange(cl, home, service("krbtgt", realm)); err != nil {
			return nil, err
		}
	}
	tgt, err = tgt.exchange(cl, realm, service(s.Name, s.Host))
	if err != nil {
		return nil, err
	}
	tgt.user, tgt.client = u, principal{cl.Credentials.CName(), home}
	return &tgt, nil
}

func service(name, instance string) types.PrincipalName {
	return types.PrincipalName{
		NameType: nametype.KRB_NT_SRV_INST, NameString: []string{name, instance},
	}
}

// exchange asks the KDC of a realm for another ticket with this one.
func (t ticket) exchange(cl *client.Client, realm string, s types.PrincipalName) (ticket, error) {
	_, reply, err := cl.TGSREQGenerateAndExchange(s, realm, t.ticket, t.key, false)
	if err != nil {
		return ticket{}, err
	}
	part := reply.DecryptedEncPart
	return ticket{ticket: reply.Ticket, key: part.Key, expires: part.EndTime}, nil
}

// grantingTicket logs in with a password or a keytab, or takes the ticket from the credential
// cache.
func (i *Initiator) grantingTicket(cl *client.Client, realm string) (ticket, error) {
	if !cl.Credentials.HasPassword() && !cl.Credentials.HasKeytab() {
		return i.cachedGrantingTicket(realm)
	}
	request, err := messages.NewASReqForTGT(realm, cl.Config, cl.Credentials.CName())
	if err != nil {
		return ticket{}, err
	}
	reply, err := cl.ASExchange(realm, request, 0)
	if err != nil {
		return ticket{}, err
	}
	return ticket{ticket: reply.Ticket, key: reply.DecryptedEncPart.Key}, nil
}

func (i *Initiator) cachedGrantingTicket(realm string) (ticket, error) {
	cache, err := i.cache()
	if err != nil {
		return ticket{}, err
	}
	entry, ok := cache.GetEntry(service("krbtgt", realm))
	switch {
	case !ok:
		return ticket{}, errors.New("the credential cache has no ticket-granting ticket: run kinit")
	case time.Now().After(entry.EndTime):
		return ticket{}, errors.New("the ticket in the credential cache has expired: run kinit")
	}
	t := ticket{key: entry.Key}
	return t, t.ticket.Unmarshal(entry.Ticket)
}

// config reads krb5.conf. gokrb5 skips include lines.
func (i *Initiator) config() (*config.Config, error) {
	path := i.getenv("KRB5_CONFIG")
	if path == "" {
		path = "/etc/krb5.conf"
	}
	conf, err := config.Load(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return conf, nil
}

// client has the user's password, or else the keys of the client keytab, or else the principal of
// the credential cache.
func (i *Initiator) client(conf *config.Config, u auth.User) (*client.Client, error) {
	name, realm, _ := strings.Cut(u.Name, "@")
	if realm == "" {
		realm = conf.LibDefaults.DefaultRealm
	}
	noFAST := client.DisablePAFXFAST(true) // gokrb5 cannot do it, and some KDCs take its offer
	if u.Password != "" {
		return client.NewWithPassword(name, realm, u.Password, conf, noFAST), nil
	}
	if path := filePath(i.getenv("KRB5_CLIENT_KTNAME")); path != "" {
		keys, err := keytab.Load(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return client.NewWithKeytab(name, realm, keys, conf, noFAST), nil
	}
	cache, err := i.cache()
	if err != nil {
		return nil, err
	}
	has := cache.GetClientPrincipalName().PrincipalNameString() + "@" + cache.GetClientRealm()
	if wanted := name + "@" + realm; has != wanted {
		return nil, fmt.Errorf("the credential cache belongs to %s, not to %s", has, wanted)
	}
	return client.NewFromCCache(cache, conf, noFAST)
}

func (i *Initiator) cache() (*credentials.CCache, error) {
	name := i.getenv("KRB5CCNAME")
	if name == "" {
		name = "/tmp/krb5cc_" + strconv.Itoa(os.Geteuid())
	}
	path := filePath(name)
	if path == "" {
		return nil, fmt.Errorf("KRB5CCNAME: the credential cache %q is not a file", name)
	}
	cache, err := credentials.LoadCCache(path)
	if err != nil {
		return nil, fmt.Errorf("there is no password, no client keytab (KRB5_CLIENT_KTNAME) "+
			"and no credential cache: %w", err)
	}
	return cache, nil
}

// filePath takes the type off the name of a keytab or cache; it is empty for one that is no file.
func filePath(name string) string {
	kind, path, typed := strings.Cut(name, ":")
	switch {
	case !typed:
		return name
	case kind == "FILE" || kind == "WRFILE":
		return path
	}
	return ""
}
