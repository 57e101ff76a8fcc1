# The service without a build step: Node strips the types. The database is another container or a managed PostgreSQL, so the
# optional packages (embedded PostgreSQL, Node itself) stay out.
FROM node:24-slim

ENV NODE_ENV=production
WORKDIR /app

COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional && npm cache clean --force

COPY migrations ./migrations
COPY src ./src

# In a container the service is reached from outside, so it asks for a key: set RUNTIME_API_KEYS (or JWT_ISSUER).
ENV HOST=0.0.0.0 PORT=8000
EXPOSE 8000
USER node

HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/health`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]

# node is process 1 and handles SIGTERM itself: it drains, then exits with 0.
CMD ["node", "src/main.ts"]
