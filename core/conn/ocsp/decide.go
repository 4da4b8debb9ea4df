package ocsp

// Finding says what one source knows about a certificate.
type Finding uint8

// The findings. The zero value is a source without information: no staple, no cache entry, no
// answer.
const (
	None    Finding = iota
	Invalid         // there is a response, but an invalid one
	Unknown         // a valid response that does not know the certificate
	Good
	Revoked
)

var findingNames = [...]string{"none", "invalid", "unknown", "good", "revoked"}

func (f Finding) String() string { return findingNames[f] }

// Evidence holds all that is known about a server's certificate at one moment.
type Evidence struct {
	// MustStaple says that the certificate demands a stapled response.
	MustStaple bool

	Staple    Finding // the response that the server sent
	Cache     Finding // earlier responses, the accepted staple among them
	Responder Finding // the responders that the certificate names

	// Intermediates is Revoked if the staple or the cache says so of any other certificate of the
	// chain.
	Intermediates Finding

	// MayAsk says that there are responders, that asking is allowed, and that it was not done
	// yet.
	MayAsk bool
}

// Verdict says what to do with a connection.
type Verdict uint8

// The verdicts. Ask means to ask the responders and to decide again.
const (
	Accept Verdict = iota
	Ask
	RefuseRevoked
	RefuseMissingStaple
	RefuseInvalidStaple
)

var verdictNames = [...]string{
	"accept", "ask", "refuse: revoked", "refuse: missing staple", "refuse: invalid staple",
}

func (v Verdict) String() string { return verdictNames[v] }

// Decide follows the specification's "Suggested OCSP Behavior". Any valid response that says
// revoked is believed, since an attacker can choose which of several valid responses to staple. A
// certificate of unknown status is accepted ("soft fail").
func Decide(e Evidence) Verdict {
	switch {
	case e.Staple == None && e.MustStaple:
		return RefuseMissingStaple
	case e.Staple == Invalid:
		return RefuseInvalidStaple
	case e.Staple == Revoked, e.Cache == Revoked, e.Responder == Revoked,
		e.Intermediates == Revoked:
		return RefuseRevoked
	case e.Staple == Good, e.Cache == Good, e.Responder == Good:
		return Accept
	case e.MayAsk:
		return Ask
	default:
		return Accept
	}
}
