// Signing in at the issuer of tokens: OpenID Connect, the code flow with PKCE. The token is returned
// to api.ts, which keeps it in memory. What must outlive the way to the issuer and back (no
// credential) is in sessionStorage until then.
import { call } from './api';

interface Provider {
  issuer: string;
  authorizationEndpoint: string;
  tokenEndpoint: string;
  clientId: string;
  scope: string;
  token: 'access_token' | 'id_token';
}

interface Pending {
  state: string;
  verifier: string;
  nonce: string;
  hash: string;
}

const item = 'mooring-sign-in';

const base64url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');

const random = (): string => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** redirectURI is where the issuer sends the browser back to: the page without fragment and query. */
const redirectURI = (): string => location.origin + location.pathname;

const provider = (): Promise<Provider> => call<Provider>('console/oidc.json');

/** leave sends the browser to the issuer. The page ends then. */
export async function leave(): Promise<void> {
  if (!crypto.subtle) {
    throw new Error('The browser has what signing in needs only over https, or on localhost.');
  }
  const p = await provider();
  const pending: Pending = { state: random(), verifier: random(), nonce: random(), hash: location.hash };
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(pending.verifier));
  sessionStorage.setItem(item, JSON.stringify(pending));
  const to = new URL(p.authorizationEndpoint);
  const query = {
    response_type: 'code', client_id: p.clientId, redirect_uri: redirectURI(), scope: p.scope,
    state: pending.state, nonce: pending.nonce,
    code_challenge: base64url(new Uint8Array(digest)), code_challenge_method: 'S256',
  };
  for (const [name, value] of Object.entries(query)) to.searchParams.set(name, value);
  location.assign(to);
}

/** comesBack reports whether the issuer has sent the browser back to the page. */
export const comesBack = (): boolean => new URLSearchParams(location.search).has('state');

/** token returns the token for the code that the issuer has sent the browser back with. */
export async function token(): Promise<string> {
  const q = new URLSearchParams(location.search);
  const kept = sessionStorage.getItem(item);
  sessionStorage.removeItem(item);
  const pending = kept === null ? undefined : (JSON.parse(kept) as Pending);
  history.replaceState(null, '', location.pathname);
  if (pending?.hash) location.hash = pending.hash; // the view that was asked for
  if (pending === undefined || q.get('state') !== pending.state) {
    throw new Error('This sign-in was not begun here, or was begun again meanwhile. Try once more.');
  }
  if (q.has('error')) {
    throw new Error(`The issuer refused: ${q.get('error_description') ?? q.get('error')}`);
  }
  const p = await provider();
  if ((q.get('iss') ?? p.issuer) !== p.issuer) throw new Error('Another issuer has answered.');
  let response: Response;
  try {
    response = await fetch(p.tokenEndpoint, {
      method: 'POST', credentials: 'omit', cache: 'no-store',
      body: new URLSearchParams({
        grant_type: 'authorization_code', code: q.get('code') ?? '', redirect_uri: redirectURI(),
        client_id: p.clientId, code_verifier: pending.verifier,
      }),
    });
  } catch {
    throw new Error(
      `${new URL(p.tokenEndpoint).origin} gave no token. Does it allow the origin ${location.origin} (CORS)?`,
    );
  }
  const answer = (await response.json().catch(() => ({}))) as Record<string, string | undefined>;
  const found = answer[p.token];
  if (!response.ok || found === undefined) {
    throw new Error(`The issuer gave no token: ${answer['error_description'] ?? answer['error'] ?? response.status}`);
  }
  if (p.token === 'id_token' && nonceOf(found) !== pending.nonce) {
    throw new Error('The token is not of this sign-in.');
  }
  return found;
}

/** nonceOf returns the nonce of an id token, which the gateway verifies. */
function nonceOf(jwt: string): unknown {
  try {
    const claims = atob((jwt.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/'));
    return (JSON.parse(claims) as { nonce?: unknown }).nonce;
  } catch {
    return undefined;
  }
}
