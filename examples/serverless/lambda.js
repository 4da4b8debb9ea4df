// The function on AWS Lambda, behind a function URL or an HTTP API (payload format 2.0). Its handler
// is lambda.handler. Lambda gives an event, and wants an object: both are those of one HTTP request.

import app from './handler.js';

export async function handler(event) {
  const { http, domainName } = event.requestContext;
  const query = event.rawQueryString ? `?${event.rawQueryString}` : '';
  const request = new Request(`https://${domainName}${event.rawPath}${query}`, {
    method: http.method,
    headers: event.headers,
    body: event.body && (event.isBase64Encoded ? Buffer.from(event.body, 'base64') : event.body),
  });
  const response = await app.fetch(request, process.env);
  return {
    statusCode: response.status,
    headers: Object.fromEntries(response.headers),
    body: await response.text(),
  };
}
