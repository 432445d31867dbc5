// The OpenAPI document, each call of which can be tried.
/* global SwaggerUIBundle */
SwaggerUIBundle({ url: "/openapi.json", dom_id: "#documentation", deepLinking: true });
