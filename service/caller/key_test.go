package caller_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/service/caller"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newKey returns a key and its line.
func newKey(t testing.TB, principal string, expires time.Time) (key, line string) {
	t.Helper()
	key, line, err := caller.NewKey(principal, expires)
	if err != nil {
		t.Fatal(err)
	}
	return key, line
}

func table(t testing.TB, lines ...string) *caller.KeyTable {
	t.Helper()
	keys, err := caller.ParseKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func bearer(text string) *caller.Presented {
	return &caller.Presented{Authorization: []string{"Bearer " + text}}
}

// outcome writes what Authenticate returned as one word.
func outcome(id *caller.Identity, err error) string {
	if err == nil {
		return id.Principal
	}
	e, ok := errors.AsType[*caller.Error](err)
	if !ok {
		return err.Error()
	}
	return [...]string{"missing", "invalid", "too many", "unavailable", "busy"}[e.Problem] + ": " +
		e.Message
}

func TestKeys(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	other, _ := newKey(t, "shop", time.Time{})
	old, oldLine := newKey(t, "old", time.Now().Add(-time.Minute))
	later, laterLine := newKey(t, "later", time.Now().Add(time.Hour))
	a := caller.New(caller.Config{Keys: table(t, "# a comment", "", line, oldLine, laterLine)})
	flipped := flip(key)
	for _, row := range []struct {
		name string
		p    *caller.Presented
		want string
	}{
		{"nothing", &caller.Presented{}, "missing"},
		{"bearer", bearer(key), "key:shop"},
		{"any case of the scheme", &caller.Presented{Authorization: []string{"bEaRer  " + key}}, "key:shop"},
		{"header", &caller.Presented{APIKey: []string{key}}, "key:shop"},
		{"expires later", bearer(later), "key:later"},
		{"expired", bearer(old), "invalid: the API key has expired"},
		{"not in the table", bearer(other), "invalid: the API key is not valid"},
		{"known id, wrong secret", bearer(flipped), "invalid: the API key is not valid"},
		{"expired, wrong secret", bearer(flip(old)), "invalid: the API key is not valid"},
		{"cut", bearer(key[:len(key)-1]), "invalid: the API key is not valid"},
		{"not base64", bearer(key[:len(key)-1] + "!"), "invalid: the API key is not valid"},
		{"an empty header", &caller.Presented{APIKey: []string{""}}, "invalid"},
		{"another scheme", &caller.Presented{Authorization: []string{"Basic " + key}}, "invalid"},
		{"a token", bearer("a.b.c"), "invalid: the credential is not an API key, which begins with mooring_, and this gateway accepts no tokens"},
		{"Authorization decides", &caller.Presented{Authorization: []string{"Bearer " + other}, APIKey: []string{key}}, "invalid"},
		{"Authorization decides, too", &caller.Presented{Authorization: []string{"Bearer " + key}, APIKey: []string{other}}, "key:shop"},
		{"two headers", &caller.Presented{APIKey: []string{key, key}}, "invalid"},
	} {
		got := outcome(a.Authenticate(t.Context(), row.p))
		if !strings.HasPrefix(got, row.want) || strings.Contains(got, key[20:]) {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	if got := a2(t, key); got != "invalid: this gateway accepts no API keys" {
		t.Errorf("without a table: %s", got)
	}
}

// flip changes one bit of a key's secret, in a character that has no unused bits.
func flip(key string) string {
	b := []byte(key)
	i := len(b) - 10
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

func a2(t *testing.T, key string) string {
	a := caller.New(caller.Config{CertificateName: caller.Subject})
	return outcome(a.Authenticate(t.Context(), bearer(key)))
}

func TestReplace(t *testing.T) {
	first, firstLine := newKey(t, "a", time.Time{})
	second, secondLine := newKey(t, "b", time.Time{})
	a := caller.New(caller.Config{Keys: table(t, firstLine)})
	a.Replace(table(t, firstLine))
	if since := a.Since(); !since.IsZero() {
		t.Errorf("the same keys count from %v", since)
	}
	a.Replace(table(t, secondLine))
	if a.Since().IsZero() {
		t.Error("other keys count as those before")
	}
	if got := outcome(a.Authenticate(t.Context(), bearer(second))); got != "key:b" {
		t.Errorf("the new key: %s", got)
	}
	if got := outcome(a.Authenticate(t.Context(), bearer(first))); !strings.HasPrefix(got,
		"invalid") {
		t.Errorf("the old key: %s", got)
	}
}

// TestCurrent checks which API keys still count once the keys were replaced, and with which groups
// and claims: also for what was made with a key. Other credentials count as they are.
func TestCurrent(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	_, other := newKey(t, "shop", time.Time{})
	a := caller.New(caller.Config{Keys: table(t, line)})
	id, err := a.Authenticate(t.Context(), bearer(key))
	if err != nil {
		t.Fatal(err)
	}
	hour := time.Now().Add(time.Hour)
	ticket := (&caller.Identity{Principal: id.Principal, Expires: hour}).WithKey(id.KeyRef())
	followed := 0
	a.Follow(func() { followed++ })
	for i, row := range []struct {
		name   string
		keys   *caller.KeyTable
		want   bool
		groups string
	}{
		{"the same keys", table(t, line), true, ""},
		{"one more key", table(t, other, line), true, ""},
		{"in a group", table(t, line+" groups=g claim.c=1"), true, "key:g"},
		{"another key of the principal", table(t, other), false, ""},
		{"the key of another principal", table(t, "x"+line), false, ""},
		{"no key", table(t), false, ""},
		{"another hash", table(t, line[:len(line)-3]+"AAA"), false, ""},
	} {
		a.Replace(row.keys)
		if followed != i+1 {
			t.Errorf("%s: %d calls of what follows", row.name, followed)
		}
		for what, id := range map[string]*caller.Identity{"key": id, "ticket": ticket} {
			now, ok := a.Current(id)
			if ok != row.want || ok && strings.Join(now.Groups, ",") != row.groups ||
				ok &&
					(now.Principal != "key:shop" || len(now.Claims) != len(now.Groups) ||
						now.KeyRef() != id.KeyRef()) {
				t.Errorf("%s, %s: %v, %v", row.name, what, now, ok)
			}
			if ok && what == "ticket" && !now.Expires.Equal(hour) {
				t.Errorf("%s: the ticket ends at %v", row.name, now.Expires)
			}
		}
	}
	soon := time.Now().Add(time.Minute).Truncate(time.Second).UTC()
	a.Replace(table(t, line+" expires="+soon.Format(time.RFC3339)))
	if now, _ := a.Current(ticket); !now.Expires.Equal(soon) {
		t.Errorf("the ticket ends at %v, its key at %v", now.Expires, soon)
	}
	if _, ok := a.Current(&caller.Identity{Principal: "cert:shop"}); !ok {
		t.Error("a certificate does not count")
	}
}

func TestNewKey(t *testing.T) {
	key, line := newKey(t, "shop", time.Date(2027, 1, 31, 12, 0, 0, 0, time.FixedZone("", 3600)))
	again, _ := newKey(t, "shop", time.Time{})
	if key == again || len(key) != 60 || !strings.HasPrefix(key, "mooring_") {
		t.Errorf("keys %q, %q: want two of 60 bytes", key, again)
	}
	if strings.Contains(line, key[17:]) ||
		!strings.HasSuffix(line, " expires=2027-01-31T11:00:00Z") {
		t.Errorf("line %q", line)
	}
	keys := table(t, line)
	if got := keys.Describe(); keys.Len() != 1 ||
		!slices.Equal(got, []string{"shop " + key[8:16] + " expires=2027-01-31T11:00:00Z"}) {
		t.Errorf("Describe = %q", got)
	}
	for _, name := range []string{
		"", "a b", "a\tb", "#a", "a\x00", "a\xff", strings.Repeat("x", 300),
	} {
		if _, _, err := caller.NewKey(name, time.Time{}); err == nil {
			t.Errorf("NewKey(%q) succeeds", name)
		}
	}
}

func TestParseKeys(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	fields := strings.Fields(line)
	for _, row := range []struct{ name, text, want string }{
		{"the key itself", key, "line 1: it is not a principal"},
		{"the word line", "line  " + line, "line 1: the second field is not the id of a key: the line is what"},
		{"too many fields", line + " expires=2027-01-01T00:00:00Z more", "line 1"},
		{"second line", "# x\n" + fields[0] + " short " + fields[2], "line 2: the second field"},
		{"short id", fields[0] + " AAAA " + fields[2], "line 1: the second field"},
		{"no hash", fields[0] + " " + fields[1] + " AAAA", "third field"},
		{"short salt", fields[0] + " " + fields[1] + " AAAA." + strings.Split(fields[2], ".")[1], "third field"},
		{"long hash", line + "AAAA", "third field"},
		{"time", line + " expires=tomorrow", "fourth field"},
		{"field", line + " until=2027-01-01T00:00:00Z", "fourth field"},
		{"twice", line + "\n" + line, "line 2: an earlier line"},
		{"principal", strings.Repeat("x", 300) + " " + fields[1] + " " + fields[2], "principal"},
	} {
		_, err := caller.ParseKeys([]byte(row.text))
		if err == nil || !strings.Contains(err.Error(), row.want) ||
			strings.Contains(err.Error(), fields[2]) {
			t.Errorf("%s: error %v, want %s", row.name, err, row.want)
		}
	}
	if k, err := caller.ParseKeys(nil); err != nil || k.Len() != 0 {
		t.Errorf("an empty file: %v, %v", k, err)
	}
}

func FuzzParseKeys(f *testing.F) {
	_, line, err := caller.NewKey("shop", time.Unix(0, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(line))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := caller.ParseKeys(text)
		if err == nil && keys.Len() != len(keys.Describe()) {
			t.Errorf("%d keys, %d descriptions", keys.Len(), len(keys.Describe()))
		}
	})
}

func TestCertificates(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	spiffe, err := url.Parse("spiffe://example/shop")
	if err != nil {
		t.Fatal(err)
	}
	full := ca.Issue(t, "shop.example", func(c *x509.Certificate) {
		c.Subject.Organization = []string{"Example"}
		c.URIs, c.EmailAddresses = []*url.URL{spiffe}, []string{"shop@example"}
	}).Certificate
	bare := ca.Issue(t, "192.0.2.1", func(c *x509.Certificate) {
		c.Subject.CommonName = ""
	}).Certificate
	two := ca.Issue(t, "a", func(c *x509.Certificate) {
		c.DNSNames = []string{"a", "b"}
	}).Certificate
	twins := ca.Issue(t, "a", func(c *x509.Certificate) {
		c.DNSNames = []string{"a", "a"}
	}).Certificate
	units := ca.Issue(t, "a", func(c *x509.Certificate) {
		c.Subject.ExtraNames = []pkix.AttributeTypeAndValue{
			{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "other"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "a"},
		}
	}).Certificate
	old := ca.Issue(t, "a",
		certtest.Valid(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))).Certificate
	future := ca.Issue(t, "a",
		certtest.Valid(time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))).Certificate
	for _, row := range []struct {
		name string
		by   caller.CertificateName
		c    *x509.Certificate
		want string
	}{
		{"subject", caller.Subject, full, "cert:CN=shop.example,O=Example"},
		{"common name", caller.CommonName, full, "cert:shop.example"},
		{"dns", caller.DNSName, full, "cert:shop.example"},
		{"uri", caller.URI, full, "cert:spiffe://example/shop"},
		{"email", caller.Email, full, "cert:shop@example"},
		{"none", "", full, "invalid: this gateway accepts no client certificates"},
		{"no dns", caller.DNSName, bare, "invalid: the client certificate has 0 names"},
		{"no uri", caller.URI, bare, "invalid: the client certificate has 0 names"},
		{"no email", caller.Email, bare, "invalid: the client certificate has 0 names"},
		{"no subject", caller.Subject, bare, "invalid: the name"},
		{"two", caller.DNSName, two, "invalid: the client certificate has 2 names"},
		{"one name twice", caller.DNSName, twins, "cert:a"},
		{"one name twice, again", caller.DNSName, twins, "cert:a"},
		{"two common names in the subject", caller.Subject, units, "cert:CN=a,CN=other"},
		{"two common names", caller.CommonName, units, "invalid: the client certificate has 2 names"},
		{"no common name", caller.CommonName, bare, "invalid: the client certificate has 0 names"},
		{"expired", caller.CommonName, old, "invalid: the client certificate has expired"},
		{"not yet", caller.CommonName, future, "invalid: the client certificate has expired"},
	} {
		a := caller.New(caller.Config{CertificateName: row.by})
		got := outcome(a.Authenticate(t.Context(), &caller.Presented{Certificate: row.c}))
		if !strings.HasPrefix(got, row.want) {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	// A key decides before a certificate.
	key, line := newKey(t, "shop", time.Time{})
	a := caller.New(caller.Config{Keys: table(t, line), CertificateName: caller.Subject})
	if got := outcome(a.Authenticate(t.Context(),
		&caller.Presented{APIKey: []string{key}, Certificate: full})); got != "key:shop" {
		t.Errorf("key and certificate: %s", got)
	}
	if got := outcome(a.Authenticate(t.Context(), &caller.Presented{
		APIKey: []string{"x"}, Certificate: full,
	})); !strings.HasPrefix(got, "invalid") {
		t.Errorf("wrong key and certificate: %s", got)
	}
	if got := caller.CertificateNames(); len(got) != 5 {
		t.Errorf("CertificateNames = %v", got)
	}
}

// TestCertificateExpires checks that a certificate that was accepted does not count after its time,
// in the calls of a connection that stays open.
func TestCertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		c := &x509.Certificate{
			DNSNames: []string{"ann.test"}, NotBefore: now, NotAfter: now.Add(time.Minute),
		}
		a := caller.New(caller.Config{CertificateName: caller.DNSName})
		for _, row := range []struct {
			after time.Duration
			want  string
		}{
			{0, "cert:ann.test"},
			{time.Minute, "cert:ann.test"},
			{time.Nanosecond, "invalid: the client certificate has expired"},
		} {
			time.Sleep(row.after) //nolint:forbidigo // fake time
			id, err := a.Authenticate(t.Context(), &caller.Presented{Certificate: c})
			if got := outcome(id, err); got != row.want {
				t.Errorf("after %s: %s, want %s", time.Since(now), got, row.want)
			}
			if err == nil && !id.Expires.Equal(c.NotAfter) {
				t.Errorf("the identity expires at %s", id.Expires)
			}
		}
	})
}

// TestThrottle checks that an address that fails too often is told to wait, that right keys from
// it go on counting, and that other addresses do not notice.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, line := newKey(t, "shop", time.Time{})
		a := caller.New(caller.Config{Keys: table(t, line)})
		try := func(address, text string) string {
			return outcome(a.Authenticate(t.Context(), &caller.Presented{
				APIKey: []string{text}, Address: netip.MustParseAddr(address),
			}))
		}
		count := func(address string) (n int) {
			for strings.HasPrefix(try(address, "wrong"), "invalid") {
				n++
			}
			return n
		}
		if n := count("2001:db8::1"); n != 100 {
			t.Errorf("%d failures before the address has to wait, want 100", n)
		}
		for _, row := range []struct{ name, address, text, want string }{
			{"the same address", "2001:db8::1", "wrong", "too many"},
			{"its network", "2001:db8::ffff:2", "wrong", "too many"},
			{"another network", "2001:db8:0:1::1", "wrong", "invalid"},
			{"the right key", "2001:db8::1", key, "key:shop"},
			{"IPv4", "192.0.2.1", "wrong", "invalid"},
		} {
			if got := try(row.address, row.text); !strings.HasPrefix(got, row.want) {
				t.Errorf("%s: %s, want %s", row.name, got, row.want)
			}
		}
		if got := outcome(a.Authenticate(t.Context(), &caller.Presented{
			Address: netip.MustParseAddr("2001:db8::1"),
		})); !strings.HasPrefix(got, "missing") {
			t.Errorf("without credentials: %s", got)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		if n := count("2001:db8::1"); n != 10 {
			t.Errorf("%d failures after a second, want 10", n)
		}
		if n := count("::ffff:192.0.2.1"); n != 100 { // IPv4 in IPv6: refilled meanwhile
			t.Errorf("%d failures of an IPv4 address in IPv6, want 100", n)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if n := count("2001:db8::1"); n != 100 {
			t.Errorf("%d failures after an hour, want 100", n)
		}
	})
}

// TestThrottleForgets checks that the table of addresses is bounded: it forgets the address
// that failed first.
func TestThrottleForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := caller.New(caller.Config{Keys: table(t)})
		try := func(address netip.Addr) string {
			return outcome(a.Authenticate(t.Context(),
				&caller.Presented{APIKey: []string{"x"}, Address: address}))
		}
		first := netip.MustParseAddr("192.0.2.1")
		for !strings.HasPrefix(try(first), "too many") {
		}
		address := netip.MustParseAddr("10.0.0.0")
		for range 10_000 {
			address = address.Next()
			try(address)
		}
		if got := try(first); !strings.HasPrefix(got, "invalid") {
			t.Errorf("after 10,000 others: %s", got)
		}
	})
}

func BenchmarkKey(b *testing.B) {
	key, line := newKey(b, "shop", time.Time{})
	a := caller.New(caller.Config{Keys: table(b, line)})
	p := bearer(key)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
}

// TestKeyAllocations checks that an API key that counts costs no allocation.
func TestKeyAllocations(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	a, p := caller.New(caller.Config{Keys: table(t, line)}), bearer(key)
	if n := testing.AllocsPerRun(100, func() { _, _ = a.Authenticate(t.Context(), p) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAttributes checks what a policy learns of the client of each kind of credential.
func TestAttributes(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	for _, row := range []struct{ line, want string }{
		{line, "[] map[]"},
		{line + " groups=a,b claim.tenant=acme claim.x=y=z expires=2199-01-31T00:00:00Z", "[key:a key:b] map[tenant:acme x:y=z]"},
	} {
		id, err := caller.New(caller.Config{Keys: table(t, row.line)}).
			Authenticate(t.Context(), bearer(key))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(id.Groups, id.Claims); got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
	}
	for _, bad := range []string{
		" groups=", " claim.=a", " claim.a=", " claim.a=b claim.a=c", " groups=a groups=b", " tenant=a",
	} {
		if _, err := caller.ParseKeys([]byte(line + bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	c := &x509.Certificate{
		Subject: pkix.Name{
			CommonName: "ann", OrganizationalUnit: []string{"ops"}, Organization: []string{"acme"},
		},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"ann.test"},
	}
	a := caller.New(caller.Config{CertificateName: caller.DNSName})
	first, err := a.Authenticate(t.Context(), &caller.Presented{Certificate: c})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(first.Groups, first.Claims["dns"],
		first.Claims["organization"]); got != "[cert:ops] [ann.test] [acme]" {
		t.Errorf("certificate: %s", got)
	}
	if again, err := a.Authenticate(t.Context(), &caller.Presented{Certificate: c}); err != nil ||
		again != first {
		t.Errorf("the next call of the connection: %v, %v, want the same identity", again, err)
	}
}
